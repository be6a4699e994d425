-- Gates: what refuses is left alone for a while, by all workers. Waiting spends no attempt.

-- name: close
-- closed_until null: until a person opens it.
INSERT INTO gates (organization_id, name, reason, closed_until)
VALUES (%(organization_id)s, %(name)s, %(reason)s, now() + make_interval(secs => %(wait_s)s))
ON CONFLICT (organization_id, name) DO UPDATE SET reason = excluded.reason, closed_at = now(),
  closed_until = CASE WHEN gates.closed_until IS NULL THEN NULL ELSE excluded.closed_until END

-- name: open
DELETE FROM gates WHERE organization_id = %(organization_id)s AND name = %(name)s RETURNING name

-- name: open_due
DELETE FROM gates WHERE closed_until <= now() RETURNING organization_id, name
