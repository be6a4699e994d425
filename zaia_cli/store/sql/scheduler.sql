-- What time brings: every statement is conditional, so any number of schedulers may run at once.

-- name: expired
-- Running attempts whose lease ran out, or that nobody holds any more, or that run far too long.
SELECT a.organization_id, a.id AS token, a.item_id, a.worker, i.conversation_id, i.reference, i.class, i.attempts, i.trace_id,
  h.token = a.id AND h.lease_until >= now() AS is_overlong
FROM attempts a
JOIN work_items i ON i.organization_id = a.organization_id AND i.id = a.item_id
JOIN hot h ON h.organization_id = i.organization_id AND h.conversation_id = i.conversation_id
WHERE a.state = 'running'
  AND (h.token IS DISTINCT FROM a.id OR h.lease_until < now() OR a.started_at < now() - make_interval(secs => %(reclaim_after_s)s))
LIMIT 100

-- name: still_expired
-- The same, again, under the lock.
SELECT a.id FROM attempts a
JOIN hot h ON h.organization_id = a.organization_id AND h.conversation_id = %(conversation_id)s
WHERE a.organization_id = %(organization_id)s AND a.id = %(token)s AND a.state = 'running'
  AND (h.token IS DISTINCT FROM a.id OR h.lease_until < now() OR a.started_at < now() - make_interval(secs => %(reclaim_after_s)s))

-- name: heal_leases
-- A safety net, now and then: leases that ran out and that no running attempt stands for.
UPDATE hot h SET token = NULL, lease_holder = NULL, lease_until = NULL
WHERE h.lease_until < now() AND NOT EXISTS (SELECT 1 FROM attempts a
  WHERE a.organization_id = h.organization_id AND a.id = h.token AND a.state = 'running')
RETURNING h.organization_id, h.conversation_id

-- name: heal_due
-- A safety net, now and then: a waiting item makes its conversation due.
UPDATE hot h SET due_at = coalesce(i.due_at, now())
FROM work_items i
WHERE i.state = 'pending' AND i.updated_at < now() - interval '1 minute'
  AND h.organization_id = i.organization_id AND h.conversation_id = i.conversation_id
  AND h.owner = 'agent' AND h.token IS NULL AND h.due_at IS NULL
RETURNING h.organization_id, h.conversation_id

-- name: record_lost_call
-- A worker that died may have had a model call in flight: its cost is unknown, not zero.
INSERT INTO model_calls (organization_id, item_id, step, try, conversation_id, attempt_id, assistant, prompt, prompt_version,
  prompt_sha256, model, purpose, outcome, error, latency_ms)
SELECT i.organization_id, i.id, 1 + coalesce((SELECT max(s.n) FROM steps s WHERE s.organization_id = i.organization_id AND s.item_id = i.id), 0),
  0, i.conversation_id, %(token)s, a.slug, a.prompt, a.prompt_version, '', a.model, 'answer', 'lost',
  'the worker died; a call may have been in flight', 0
FROM work_items i
JOIN conversations c ON c.organization_id = i.organization_id AND c.id = i.conversation_id
JOIN assistants a ON a.organization_id = c.organization_id AND a.slug = c.assistant
WHERE i.organization_id = %(organization_id)s AND i.id = %(item_id)s
ON CONFLICT DO NOTHING

-- name: age
-- A background item that waited too long moves to the standard band, once.
WITH old AS (
  SELECT i.organization_id, i.id, i.conversation_id, i.trace_id FROM work_items i
  WHERE i.state = 'pending' AND i.class = 'background' AND i.aged_at IS NULL
    AND i.opened_at < now() - make_interval(secs => %(background_s)s)
  LIMIT 500 FOR UPDATE SKIP LOCKED
), moved AS (
  UPDATE work_items i SET class = 'standard', aged_at = now(), updated_at = now() FROM old o
  WHERE i.organization_id = o.organization_id AND i.id = o.id RETURNING o.*
), raised AS (
  UPDATE hot h SET band = 1 FROM moved m
  WHERE h.organization_id = m.organization_id AND h.conversation_id = m.conversation_id AND h.band > 1
)
INSERT INTO events (organization_id, conversation_id, item_id, entity, entity_id, from_state, to_state, actor, by, why, trace_id)
SELECT organization_id, conversation_id, id, 'item', id::text, 'background', 'standard', 'scheduler', %(worker)s, 'waited too long', trace_id
FROM moved RETURNING item_id

-- name: overdue
-- A promised time passed: counted and alerted, once.
UPDATE work_items i SET overdue_at = now()
FROM (SELECT organization_id, id FROM work_items
      WHERE deadline_at < now() AND overdue_at IS NULL AND state IN ('pending', 'processing', 'waiting_approval')
      LIMIT 500 FOR UPDATE SKIP LOCKED) d
WHERE i.organization_id = d.organization_id AND i.id = d.id
RETURNING i.organization_id, i.conversation_id, i.reference, i.class, i.deadline_at

-- name: due_acknowledgements
-- The answer takes longer than promised without a word: say that it was received.
UPDATE work_items i SET ack_at = NULL
FROM (SELECT organization_id, id FROM work_items WHERE ack_at < now() AND state IN ('pending', 'processing', 'waiting_approval')
      LIMIT 200 FOR UPDATE SKIP LOCKED) d, conversations c, organizations o, hot h
WHERE i.organization_id = d.organization_id AND i.id = d.id
  AND c.organization_id = i.organization_id AND c.id = i.conversation_id AND o.id = i.organization_id
  AND h.organization_id = i.organization_id AND h.conversation_id = i.conversation_id
RETURNING i.organization_id, i.conversation_id, i.id AS item_id, i.reference, i.source_message, c.channel, o.settings, h.done_until

-- name: stuck_sending
-- A send that never reported has an unknown outcome; it never goes straight back to pending.
WITH stuck AS (
  SELECT organization_id, reply_id, n FROM parts
  WHERE state = 'sending' AND sending_at < now() - make_interval(secs => %(after_s)s)
  LIMIT 500 FOR UPDATE SKIP LOCKED
), moved AS (
  UPDATE parts p SET state = 'unknown', unknown_at = now(), updated_at = now(),
    error = '{"code": "no_outcome", "message": "the process that sent it did not report"}'
  FROM stuck s WHERE p.organization_id = s.organization_id AND p.reply_id = s.reply_id AND p.n = s.n AND p.state = 'sending'
  RETURNING p.organization_id, p.reply_id, p.n, p.conversation_id
), closed AS (
  UPDATE deliveries d SET outcome = 'unknown' FROM moved m
  WHERE d.organization_id = m.organization_id AND d.reply_id = m.reply_id AND d.part = m.n AND d.outcome IS NULL
)
INSERT INTO events (organization_id, conversation_id, entity, entity_id, from_state, to_state, actor, by, why)
SELECT organization_id, conversation_id, 'part', reply_id || ':' || n, 'sending', 'unknown', 'scheduler', %(worker)s, 'the sender did not report'
FROM moved RETURNING entity_id

-- name: settle_waiting
-- Codes that may hide an accepted send: with no evidence after the wait, it counts as not sent.
WITH ripe AS (
  SELECT organization_id, reply_id, n, attempts FROM parts
  WHERE state = 'unknown' AND error->>'class' = 'retry_after_reconcile'
    AND unknown_at < now() - make_interval(secs => %(settle_s)s) AND attempts < %(max_attempts)s
  LIMIT 500 FOR UPDATE SKIP LOCKED
), moved AS (
  UPDATE parts p SET state = 'pending', due_at = now(), updated_at = now() FROM ripe r
  WHERE p.organization_id = r.organization_id AND p.reply_id = r.reply_id AND p.n = r.n AND p.state = 'unknown'
  RETURNING p.organization_id, p.reply_id, p.n, p.conversation_id
)
INSERT INTO events (organization_id, conversation_id, entity, entity_id, from_state, to_state, actor, by, why)
SELECT organization_id, conversation_id, 'part', reply_id || ':' || n, 'unknown', 'pending', 'scheduler', %(worker)s,
  'no sign that it was accepted' FROM moved RETURNING entity_id

-- name: resend_unknown
-- Only where the company asked for it, and once. The old delivery is given up: its process may wake and report, and that
-- report must not move a part that the new delivery is sending.
WITH ripe AS (
  SELECT organization_id, reply_id, n FROM parts
  WHERE state = 'unknown' AND reconcile_at IS NULL AND attempts < 2
    AND coalesce(error->>'class', '') NOT IN ('retry_after_reconcile', 'unknown_outcome_do_not_resend')
    AND unknown_at < now() - make_interval(secs => %(after_s)s)
  LIMIT 500 FOR UPDATE SKIP LOCKED
), moved AS (
  UPDATE parts p SET state = 'pending', due_at = now(), updated_at = now() FROM ripe r
  WHERE p.organization_id = r.organization_id AND p.reply_id = r.reply_id AND p.n = r.n AND p.state = 'unknown'
  RETURNING p.organization_id, p.reply_id, p.n, p.conversation_id
), closed AS (
  UPDATE deliveries d SET outcome = 'given_up', ended_at = coalesce(d.ended_at, now()) FROM moved m
  WHERE d.organization_id = m.organization_id AND d.reply_id = m.reply_id AND d.part = m.n
    AND (d.outcome IS NULL OR d.outcome = 'unknown')
)
INSERT INTO events (organization_id, conversation_id, entity, entity_id, from_state, to_state, actor, by, why)
SELECT organization_id, conversation_id, 'part', reply_id || ':' || n, 'unknown', 'pending', 'scheduler', %(worker)s,
  'delivery.resend_unknown' FROM moved RETURNING entity_id

-- name: open_reconcile
-- No evidence although the webhook path works (or there is none, or the window is over): a person must look.
UPDATE parts p SET reconcile_at = now()
FROM (SELECT q.organization_id, q.reply_id, q.n FROM parts q
      JOIN conversations c ON c.organization_id = q.organization_id AND c.id = q.conversation_id
      JOIN channel_accounts a ON a.organization_id = c.organization_id AND a.channel = c.channel AND a.account = c.account
      WHERE q.state = 'unknown' AND q.reconcile_at IS NULL AND q.unknown_at < now() - make_interval(secs => %(after_s)s)
        AND NOT (coalesce(q.error->>'class', '') = 'retry_after_reconcile' AND q.attempts < %(max_attempts)s)
        AND (c.channel NOT IN ('whatsapp', 'instagram') OR a.last_event_at > q.unknown_at OR q.unknown_at < now() - interval '1 day')
      LIMIT 500 FOR UPDATE OF q SKIP LOCKED) d
WHERE p.organization_id = d.organization_id AND p.reply_id = d.reply_id AND p.n = d.n
RETURNING p.organization_id, p.conversation_id, p.reply_id, p.n, left(p.text, 80) AS text

-- name: unsendable
-- Waiting parts that may not go any more: the window closed.
SELECT p.organization_id, p.reply_id, p.n, p.conversation_id, r.kind
FROM parts p
JOIN replies r ON r.organization_id = p.organization_id AND r.id = p.reply_id
JOIN conversations c ON c.organization_id = p.organization_id AND c.id = p.conversation_id
WHERE p.state = 'pending' AND c.channel IN ('whatsapp', 'instagram')
  AND (c.last_customer_at IS NULL OR c.last_customer_at <= now() - make_interval(secs => %(window_s)s - 60))
LIMIT 100

-- name: fail_unsendable
WITH failed AS (
  UPDATE parts p SET state = 'failed', failed_at = now(), updated_at = now(),
    error = '{"code": "window_closed", "class": "terminal_window", "message": "the 24-hour window is closed"}'
  WHERE p.organization_id = %(organization_id)s AND p.reply_id = %(reply_id)s AND p.n = %(n)s AND p.state = 'pending'
  RETURNING p.organization_id, p.reply_id, p.n, p.conversation_id, p.error
), logged AS (
  INSERT INTO events (organization_id, conversation_id, entity, entity_id, from_state, to_state, actor, by, why)
  SELECT organization_id, conversation_id, 'part', reply_id || ':' || n, 'pending', 'failed', 'scheduler', %(worker)s,
    error->>'message' FROM failed
)
SELECT organization_id, reply_id, n, conversation_id, error FROM failed

-- name: behind_failed
-- What follows a failed part is not sent, also when the process that saw the failure died before it could cancel.
WITH gone AS (
  UPDATE parts p SET state = 'cancelled', updated_at = now()
  FROM parts f
  WHERE p.state = 'pending' AND f.organization_id = p.organization_id AND f.reply_id = p.reply_id AND f.n < p.n
    AND f.state IN ('failed', 'cancelled')
  RETURNING p.organization_id, p.conversation_id, p.reply_id, p.n
)
INSERT INTO events (organization_id, conversation_id, entity, entity_id, from_state, to_state, actor, by, why)
SELECT organization_id, conversation_id, 'part', reply_id || ':' || n, 'pending', 'cancelled', 'scheduler', %(worker)s,
  'an earlier part failed' FROM gone

-- name: owned_by_people
-- Answers of the agent that came back to pending after a person took over.
WITH gone AS (
  UPDATE parts p SET state = 'cancelled', updated_at = now()
  FROM replies r, hot h
  WHERE p.state = 'pending' AND r.organization_id = p.organization_id AND r.id = p.reply_id AND r.kind = 'answer'
    AND h.organization_id = p.organization_id AND h.conversation_id = p.conversation_id AND h.owner = 'human'
  RETURNING p.organization_id, p.conversation_id, p.reply_id, p.n
)
INSERT INTO events (organization_id, conversation_id, entity, entity_id, from_state, to_state, actor, by, why)
SELECT organization_id, conversation_id, 'part', reply_id || ':' || n, 'pending', 'cancelled', 'scheduler', %(worker)s,
  'a person has the conversation' FROM gone RETURNING entity_id

-- name: orphan_statuses
-- Waiting statuses whose part is known by now.
SELECT DISTINCT s.organization_id, s.provider_message_id FROM statuses s
LEFT JOIN deliveries d ON d.organization_id = s.organization_id AND d.opaque_id = s.opaque_id
JOIN parts p ON p.organization_id = s.organization_id
  AND (p.provider_message_id = s.provider_message_id OR p.reply_id = d.reply_id AND p.n = d.part)
WHERE s.applied_at IS NULL AND s.received_at > now() - interval '1 hour' LIMIT 500

-- name: heartbeat
INSERT INTO workers (id, in_flight, draining) VALUES (%(worker)s, %(in_flight)s, %(draining)s)
ON CONFLICT (id) DO UPDATE SET seen_at = now(), in_flight = excluded.in_flight, draining = excluded.draining

-- name: goodbye
DELETE FROM workers WHERE id = %(worker)s OR seen_at < now() - interval '1 day'

-- name: unfinished
-- What a draining worker still waits for: people, approvals and closed accounts aside.
SELECT
  (SELECT count(*) FROM work_items WHERE state IN ('pending', 'processing')) AS items,
  (SELECT count(*) FROM parts p JOIN conversations c ON c.organization_id = p.organization_id AND c.id = p.conversation_id
    WHERE (p.state IN ('pending', 'sending') OR p.state = 'unknown' AND p.error->>'class' = 'retry_after_reconcile' AND p.reconcile_at IS NULL)
      AND NOT EXISTS (SELECT 1 FROM gates g WHERE g.organization_id = p.organization_id AND g.closed_until IS NULL
        AND g.name = 'channel:' || c.channel || ':' || c.account)) AS parts
