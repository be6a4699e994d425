-- name: list
-- Work items: open ones first, the most urgent and oldest on top; ended ones after them, newest first.
SELECT i.organization_id AS organization, i.id, i.reference, i.conversation_id, c.channel, c.address, c.thread, i.class,
       i.class_rule, i.state, i.attempts, i.due_at, i.opened_at, i.deadline_at, i.completed_at, i.error,
       extract(epoch FROM now() - i.opened_at) AS age_s, h.lease_holder AS worker
  FROM work_items i
  JOIN conversations c ON c.organization_id = i.organization_id AND c.id = i.conversation_id
  LEFT JOIN hot h ON h.organization_id = i.organization_id AND h.conversation_id = i.conversation_id
                 AND i.state = 'processing' AND h.lease_until > now()
 WHERE (CAST(%(organization)s AS text) IS NULL OR i.organization_id = %(organization)s)
   AND (CAST(%(state)s AS text) IS NULL OR i.state = %(state)s)
   AND (CAST(%(item_class)s AS text) IS NULL OR i.class = %(item_class)s)
 ORDER BY i.state IN ('completed', 'failed', 'cancelled'),
          CASE WHEN i.state IN ('completed', 'failed', 'cancelled') THEN NULL
               ELSE array_position(ARRAY['urgent', 'standard', 'background'], i.class) END,
          CASE WHEN i.state IN ('completed', 'failed', 'cancelled') THEN NULL ELSE i.opened_at END,
          coalesce(i.completed_at, i.updated_at) DESC, i.reference
 LIMIT %(limit)s

-- name: states
-- How many items are in each state, and how many open ones are past their promise.
SELECT i.state, count(*) AS items,
       count(*) FILTER (WHERE i.state IN ('pending', 'processing', 'waiting_approval')
                          AND (i.overdue_at IS NOT NULL OR i.deadline_at < now())) AS overdue
  FROM work_items i
 WHERE CAST(%(organization)s AS text) IS NULL OR i.organization_id = %(organization)s
 GROUP BY i.state

-- name: oldest
-- How long the oldest pending item of each class has waited, in seconds.
SELECT i.class, extract(epoch FROM now() - min(i.opened_at)) AS oldest_s, count(*) AS items
  FROM work_items i
 WHERE i.state = 'pending' AND (CAST(%(organization)s AS text) IS NULL OR i.organization_id = %(organization)s)
 GROUP BY i.class

-- name: counters
-- The single numbers of the queue's health.
SELECT (SELECT count(*) FROM attempts a
         WHERE a.state = 'failed' AND a.error ->> 'code' = 'lease_expired' AND a.ended_at > now() - interval '24 hours'
           AND (CAST(%(organization)s AS text) IS NULL OR a.organization_id = %(organization)s)) AS expired_leases_24h,
       (SELECT coalesce(sum(r.repeats), 0) FROM receipts r
         WHERE CAST(%(organization)s AS text) IS NULL OR r.organization_id = %(organization)s) AS duplicate_inputs,
       (SELECT count(*) FROM rejected_inputs j
         WHERE CAST(%(organization)s AS text) IS NULL OR j.organization_id = %(organization)s) AS rejected_inputs,
       (SELECT count(*) FROM handoffs h
         WHERE h.state = 'open'
           AND (CAST(%(organization)s AS text) IS NULL OR h.organization_id = %(organization)s)) AS human_open

-- name: replies
-- Replies counted by the set of states that their parts are in; the reply's own state is derived from that set.
SELECT x.states, count(*) AS replies
  FROM (SELECT coalesce(array_agg(DISTINCT p.state ORDER BY p.state) FILTER (WHERE p.state IS NOT NULL), '{}') AS states
          FROM replies r
          LEFT JOIN parts p ON p.organization_id = r.organization_id AND p.reply_id = r.id
         WHERE CAST(%(organization)s AS text) IS NULL OR r.organization_id = %(organization)s
         GROUP BY r.organization_id, r.id) x
 GROUP BY x.states

-- name: rejected
-- Inputs that could not be read, newest first.
SELECT j.id, j.organization_id AS organization, j.channel, j.account, j.path, j.reason, j.raw, j.at
  FROM rejected_inputs j
 WHERE CAST(%(organization)s AS text) IS NULL OR j.organization_id = %(organization)s
 ORDER BY j.id DESC
 LIMIT %(limit)s
