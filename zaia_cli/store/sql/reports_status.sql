-- name: server
-- The database itself.
SELECT current_setting('server_version') AS version, current_database() AS name, now() AS at,
       pg_database_size(current_database()) AS size_bytes

-- name: workers
-- Worker processes by how long ago each was seen.
SELECT w.id, w.started_at, w.seen_at, w.in_flight, w.draining, extract(epoch FROM now() - w.seen_at) AS seen_s
  FROM workers w
 ORDER BY w.seen_at DESC
 LIMIT 100

-- name: queue
-- Open items by state and class, with the age of the oldest in seconds.
SELECT i.state, i.class, count(*) AS items, extract(epoch FROM now() - min(i.opened_at)) AS oldest_s
  FROM work_items i
 WHERE i.state NOT IN ('completed', 'cancelled')
   AND (CAST(%(organization)s AS text) IS NULL OR i.organization_id = %(organization)s)
 GROUP BY i.state, i.class
 ORDER BY i.state, array_position(ARRAY['urgent', 'standard', 'background'], i.class)

-- name: counters
-- The single numbers of health now.
SELECT (SELECT count(*) FROM hot h WHERE h.lease_until > now()
           AND (CAST(%(organization)s AS text) IS NULL OR h.organization_id = %(organization)s)) AS leases_live,
       (SELECT count(*) FROM hot h WHERE h.lease_until <= now()
           AND (CAST(%(organization)s AS text) IS NULL OR h.organization_id = %(organization)s)) AS leases_expired,
       (SELECT count(DISTINCT p.reply_id) FROM parts p WHERE p.state = 'unknown'
           AND (CAST(%(organization)s AS text) IS NULL OR p.organization_id = %(organization)s)) AS replies_unknown,
       (SELECT count(*) FROM handoffs h WHERE h.state = 'open'
           AND (CAST(%(organization)s AS text) IS NULL OR h.organization_id = %(organization)s)) AS handoffs_open,
       (SELECT count(*) FROM approvals a WHERE a.state = 'waiting'
           AND (CAST(%(organization)s AS text) IS NULL OR a.organization_id = %(organization)s)) AS approvals_waiting,
       (SELECT count(*) FROM alerts a WHERE a.state = 'pending'
           AND (CAST(%(organization)s AS text) IS NULL OR a.organization_id = %(organization)s)) AS alerts_pending,
       (SELECT count(*) FROM alerts a WHERE a.state = 'failed'
           AND (CAST(%(organization)s AS text) IS NULL OR a.organization_id = %(organization)s)) AS alerts_failed

-- name: gates
-- Gates that are closed now.
SELECT g.organization_id AS organization, g.name, g.reason, g.closed_at, g.closed_until,
       extract(epoch FROM g.closed_until - now()) AS opens_in_s
  FROM gates g
 WHERE (g.closed_until IS NULL OR g.closed_until > now())
   AND (CAST(%(organization)s AS text) IS NULL OR g.organization_id = %(organization)s)
 ORDER BY g.organization_id, g.name

-- name: last_day
-- What happened in the last 24 hours.
SELECT (SELECT count(*) FROM messages m WHERE m.role = 'customer' AND m.created_at > now() - interval '24 hours'
           AND (CAST(%(organization)s AS text) IS NULL OR m.organization_id = %(organization)s)) AS messages_in,
       (SELECT count(*) FROM work_items i WHERE i.state = 'completed'
           AND i.completed_at > now() - interval '24 hours'
           AND (CAST(%(organization)s AS text) IS NULL OR i.organization_id = %(organization)s)) AS items_completed,
       (SELECT count(*) FROM attempts a WHERE a.state = 'failed' AND a.ended_at > now() - interval '24 hours'
           AND (CAST(%(organization)s AS text) IS NULL OR a.organization_id = %(organization)s)) AS attempts_failed,
       (SELECT count(*) FROM handoffs h WHERE h.created_at > now() - interval '24 hours'
           AND (CAST(%(organization)s AS text) IS NULL OR h.organization_id = %(organization)s)) AS handoffs,
       (SELECT count(*) FROM parts p WHERE p.accepted_at > now() - interval '24 hours'
           AND (CAST(%(organization)s AS text) IS NULL OR p.organization_id = %(organization)s)) AS parts_accepted,
       (SELECT count(*) FROM parts p WHERE p.failed_at > now() - interval '24 hours'
           AND (CAST(%(organization)s AS text) IS NULL OR p.organization_id = %(organization)s)) AS parts_failed,
       (SELECT count(*) FROM rejected_inputs j WHERE j.at > now() - interval '24 hours'
           AND (CAST(%(organization)s AS text) IS NULL OR j.organization_id = %(organization)s)) AS rejected_inputs,
       c.model_calls, c.cost_usd, c.unpriced_calls
  FROM (SELECT count(*) AS model_calls, sum(m.cost_usd) AS cost_usd,
               count(*) FILTER (WHERE m.cost_usd IS NULL) AS unpriced_calls
          FROM model_calls m
         WHERE m.at > now() - interval '24 hours'
           AND (CAST(%(organization)s AS text) IS NULL OR m.organization_id = %(organization)s)) c
