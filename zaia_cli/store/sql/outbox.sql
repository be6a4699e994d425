-- The outbox: replies, parts, deliveries, statuses.

-- name: insert_replies
-- A reply of one kind exists once per item; what comes back is new.
INSERT INTO replies (organization_id, id, conversation_id, item_id, kind, author, text, source_message, read_until)
SELECT organization_id, id, conversation_id, item_id, kind, author, text, source_message, read_until
FROM jsonb_to_recordset(%(rows)s) AS r(organization_id text, id uuid, conversation_id uuid, item_id uuid, kind text,
  author text, text text, source_message text, read_until int)
ON CONFLICT DO NOTHING
RETURNING id

-- name: insert_parts
INSERT INTO parts (organization_id, reply_id, n, conversation_id, text)
SELECT r.organization_id, r.reply_id, r.n, r.conversation_id, r.text
FROM ROWS FROM (jsonb_to_recordset(%(rows)s) AS (organization_id text, reply_id uuid, n int, conversation_id uuid, text text)) WITH ORDINALITY AS r
ORDER BY r.ordinality

-- name: claim
-- Take parts that may go now and open their deliveries, in one commit before any network call. The owner, the window, the
-- gate and the predecessor are part of the condition.
WITH ready AS MATERIALIZED (
  SELECT p.organization_id, p.reply_id, p.n
  FROM parts p
  JOIN replies r ON r.organization_id = p.organization_id AND r.id = p.reply_id
  JOIN hot h ON h.organization_id = p.organization_id AND h.conversation_id = p.conversation_id
  JOIN conversations c ON c.organization_id = p.organization_id AND c.id = p.conversation_id
  WHERE p.state = 'pending' AND p.due_at <= now()
    AND (%(channel)s::text IS NULL OR c.channel = %(channel)s)
    AND (r.kind <> 'answer' OR h.owner = 'agent')
    AND (c.channel NOT IN ('whatsapp', 'instagram')
         OR c.last_customer_at > now() - make_interval(secs => %(window_s)s - 60))
    AND NOT EXISTS (SELECT 1 FROM gates g WHERE g.organization_id = p.organization_id
      AND g.name = 'channel:' || c.channel || ':' || c.account AND (g.closed_until IS NULL OR g.closed_until > now()))
    AND NOT EXISTS (SELECT 1 FROM parts e WHERE e.organization_id = p.organization_id
      AND e.conversation_id = p.conversation_id AND e.position < p.position
      AND (e.state IN ('pending', 'sending')
           OR e.state = 'unknown' AND e.unknown_at > now() - make_interval(secs => %(unknown_after_s)s)
           OR e.state IN ('failed', 'cancelled') AND e.reply_id = p.reply_id))
  ORDER BY p.due_at, p.position
  LIMIT %(limit)s
  FOR UPDATE OF p SKIP LOCKED
), taken AS (
  UPDATE parts p SET state = 'sending', sending_at = clock_timestamp(), attempts = p.attempts + 1, updated_at = now()
  FROM ready
  WHERE p.organization_id = ready.organization_id AND p.reply_id = ready.reply_id AND p.n = ready.n AND p.state = 'pending'
  RETURNING p.organization_id, p.reply_id, p.n, p.conversation_id, p.text, p.attempts, p.waits
), opened AS (
  INSERT INTO deliveries (organization_id, reply_id, part, n, opaque_id, worker)
  SELECT t.organization_id, t.reply_id, t.n,
    1 + (SELECT count(*) FROM deliveries d WHERE d.organization_id = t.organization_id AND d.reply_id = t.reply_id AND d.part = t.n),
    'z1:' || replace(t.reply_id::text, '-', '') || ':' || t.n || ':'
      || 1 + (SELECT count(*) FROM deliveries d WHERE d.organization_id = t.organization_id AND d.reply_id = t.reply_id AND d.part = t.n),
    %(worker)s
  FROM taken t
  RETURNING organization_id, reply_id, part, n, opaque_id
)
SELECT t.organization_id, t.reply_id, t.n, t.conversation_id, t.text, t.attempts, t.waits, o.n AS delivery, o.opaque_id,
  r.source_message, r.kind, c.channel, c.account, c.address, a.base_url, a.token_env
FROM taken t
JOIN opened o ON o.organization_id = t.organization_id AND o.reply_id = t.reply_id AND o.part = t.n
JOIN replies r ON r.organization_id = t.organization_id AND r.id = t.reply_id
JOIN conversations c ON c.organization_id = t.organization_id AND c.id = t.conversation_id
JOIN channel_accounts a ON a.organization_id = c.organization_id AND a.channel = c.channel AND a.account = c.account

-- name: next_due
-- Seconds until the next waiting part may go; null when none waits.
SELECT extract(epoch FROM min(due_at) - now())::float8 AS wait_s FROM parts WHERE state = 'pending'

-- name: finish
-- Write the outcomes of deliveries. Only a part that still waits for this outcome moves; a late answer settles an unknown.
WITH outcome AS MATERIALIZED (
  SELECT * FROM jsonb_to_recordset(%(rows)s) AS r(organization_id text, reply_id uuid, n int, delivery int, outcome text,
    state text, provider_message_id text, error jsonb, wait_s float8, counts boolean)
), closed AS (
  UPDATE deliveries d SET outcome = o.outcome, provider_message_id = o.provider_message_id, error = o.error,
    ended_at = clock_timestamp()
  FROM outcome o
  WHERE d.organization_id = o.organization_id AND d.reply_id = o.reply_id AND d.part = o.n AND d.n = o.delivery
    AND (d.outcome IS NULL OR d.outcome = 'unknown')
  RETURNING d.organization_id, d.reply_id, d.part, d.n
), before AS MATERIALIZED (
  SELECT p.organization_id, p.reply_id, p.n, p.state FROM outcome o
  JOIN parts p ON p.organization_id = o.organization_id AND p.reply_id = o.reply_id AND p.n = o.n
  ORDER BY p.position FOR UPDATE OF p
), moved AS (
  UPDATE parts p SET
    state = CASE WHEN p.state IN ('sent', 'delivered', 'read') THEN p.state ELSE o.state END,
    provider_message_id = coalesce(o.provider_message_id, p.provider_message_id),
    error = CASE WHEN o.state = 'accepted' THEN NULL ELSE coalesce(o.error, p.error) END,
    due_at = now() + make_interval(secs => coalesce(o.wait_s, 0)),
    attempts = p.attempts - CASE WHEN o.counts THEN 0 ELSE 1 END,
    waits = CASE WHEN o.state = 'pending' AND NOT o.counts THEN p.waits + 1 ELSE 0 END,
    accepted_at = CASE WHEN o.state = 'accepted' THEN coalesce(p.accepted_at, clock_timestamp()) ELSE p.accepted_at END,
    unknown_at = CASE WHEN o.state = 'unknown' THEN clock_timestamp() ELSE p.unknown_at END,
    failed_at = CASE WHEN o.state = 'failed' THEN clock_timestamp() ELSE p.failed_at END,
    updated_at = now()
  FROM outcome o
  JOIN closed d ON d.organization_id = o.organization_id AND d.reply_id = o.reply_id AND d.part = o.n AND d.n = o.delivery
  JOIN before b ON b.organization_id = o.organization_id AND b.reply_id = o.reply_id AND b.n = o.n
  WHERE p.organization_id = o.organization_id AND p.reply_id = o.reply_id AND p.n = o.n
    AND (p.state = 'sending' OR (p.state IN ('unknown', 'sent', 'delivered', 'read') AND o.state = 'accepted'))
  RETURNING p.organization_id, p.reply_id, p.n, p.conversation_id, p.state, p.provider_message_id, o.state AS asked,
    o.error, o.outcome, b.state AS before
), logged AS (
  INSERT INTO events (organization_id, conversation_id, entity, entity_id, from_state, to_state, actor, by, why)
  SELECT m.organization_id, m.conversation_id, 'part', m.reply_id || ':' || m.n, m.before, m.state, 'worker', %(worker)s,
    coalesce(m.error->>'message', m.outcome)
  FROM moved m WHERE m.state <> m.before
)
SELECT m.reply_id || ':' || m.n AS key, m.organization_id, m.reply_id, m.n, m.conversation_id, m.state, m.asked,
  m.provider_message_id, m.error, c.channel, c.account,
  EXISTS (SELECT 1 FROM statuses s WHERE s.organization_id = m.organization_id AND s.applied_at IS NULL
    AND s.provider_message_id = m.provider_message_id) AS has_statuses
FROM moved m JOIN conversations c ON c.organization_id = m.organization_id AND c.id = m.conversation_id

-- name: insert_statuses
-- Every status once; what comes back is new.
INSERT INTO statuses (organization_id, channel, account, provider_message_id, status, at, opaque_id, error)
SELECT organization_id, channel, account, provider_message_id, status, at, opaque_id, error
FROM jsonb_to_recordset(%(rows)s) AS r(organization_id text, channel text, account text, provider_message_id text,
  status text, at timestamptz, opaque_id text, error jsonb)
ORDER BY channel, account, provider_message_id, status, at
ON CONFLICT DO NOTHING
RETURNING provider_message_id

-- name: status_targets
-- The parts that waiting statuses speak of, by our opaque id or by the provider's id, with their conversations to lock.
SELECT DISTINCT p.conversation_id
FROM jsonb_to_recordset(%(rows)s) AS r(provider_message_id text)
JOIN statuses s ON s.organization_id = %(organization_id)s AND s.provider_message_id = r.provider_message_id
  AND s.applied_at IS NULL
LEFT JOIN deliveries d ON d.organization_id = s.organization_id AND d.opaque_id = s.opaque_id
JOIN parts p ON p.organization_id = s.organization_id
  AND (p.reply_id = d.reply_id AND p.n = d.part OR p.provider_message_id = s.provider_message_id)

-- name: apply_statuses
-- Move parts forward by what is known of them now: the highest status wins, a failure ends it unless it arrived.
WITH evidence AS MATERIALIZED (
  SELECT s.organization_id, s.channel, s.account, s.provider_message_id, s.status, s.at, s.error, p.reply_id, p.n,
    d.n AS delivery
  FROM jsonb_to_recordset(%(rows)s) AS r(provider_message_id text)
  JOIN statuses s ON s.organization_id = %(organization_id)s AND s.provider_message_id = r.provider_message_id
    AND s.applied_at IS NULL
  LEFT JOIN deliveries d ON d.organization_id = s.organization_id AND d.opaque_id = s.opaque_id
  JOIN parts p ON p.organization_id = s.organization_id
    AND (p.reply_id = d.reply_id AND p.n = d.part OR p.provider_message_id = s.provider_message_id)
), used AS (
  UPDATE statuses s SET applied_at = now()
  FROM evidence e
  WHERE s.organization_id = e.organization_id AND s.channel = e.channel AND s.account = e.account
    AND s.provider_message_id = e.provider_message_id AND s.status = e.status AND s.at = e.at
), settled AS (
  UPDATE deliveries d SET outcome = 'accepted', provider_message_id = e.provider_message_id, ended_at = coalesce(d.ended_at, now())
  FROM evidence e
  WHERE d.organization_id = e.organization_id AND d.reply_id = e.reply_id AND d.part = e.n AND d.n = e.delivery
    AND e.status <> 'failed' AND (d.outcome IS NULL OR d.outcome IN ('unknown', 'refused'))
), best AS (
  SELECT organization_id, reply_id, n, max(provider_message_id) AS provider_message_id,
    max(CASE status WHEN 'sent' THEN 1 WHEN 'delivered' THEN 2 WHEN 'read' THEN 3 ELSE 0 END) AS rank,
    min(at) FILTER (WHERE status = 'sent') AS sent_at,
    min(at) FILTER (WHERE status = 'delivered') AS delivered_at,
    min(at) FILTER (WHERE status = 'read') AS read_at,
    min(at) FILTER (WHERE status = 'failed') AS failed_at,
    (array_agg(error) FILTER (WHERE status = 'failed'))[1] AS error
  FROM evidence GROUP BY 1, 2, 3
), before AS MATERIALIZED (
  SELECT b.*, p.state AS before FROM best b JOIN parts p USING (organization_id, reply_id, n) FOR UPDATE OF p
), moved AS (
  UPDATE parts p SET
    state = CASE
      WHEN b.rank > CASE p.state WHEN 'sent' THEN 1 WHEN 'delivered' THEN 2 WHEN 'read' THEN 3 WHEN 'failed' THEN 3
                                 WHEN 'cancelled' THEN 3 ELSE 0 END
        THEN CASE b.rank WHEN 1 THEN 'sent' WHEN 2 THEN 'delivered' ELSE 'read' END
      WHEN b.failed_at IS NOT NULL AND p.state NOT IN ('delivered', 'read', 'cancelled') THEN 'failed'
      ELSE p.state END,
    provider_message_id = coalesce(p.provider_message_id, b.provider_message_id),
    accepted_at = coalesce(p.accepted_at, CASE WHEN b.rank > 0 THEN now() END),
    sent_at = coalesce(p.sent_at, b.sent_at),
    delivered_at = coalesce(p.delivered_at, b.delivered_at, b.read_at),
    read_at = coalesce(p.read_at, b.read_at),
    failed_at = coalesce(p.failed_at, b.failed_at),
    error = coalesce(b.error, p.error),
    updated_at = now()
  FROM before b
  WHERE p.organization_id = b.organization_id AND p.reply_id = b.reply_id AND p.n = b.n
  RETURNING p.organization_id, p.reply_id, p.n, p.conversation_id, p.state, b.before, b.error AS new_error
), changed AS (
  SELECT * FROM moved WHERE state <> before
), logged AS (
  INSERT INTO events (organization_id, conversation_id, entity, entity_id, from_state, to_state, actor, by, why)
  SELECT c.organization_id, c.conversation_id, 'part', c.reply_id || ':' || c.n, c.before, c.state, 'channel',
    v.channel || ':' || v.account, coalesce('status: ' || (c.new_error->>'message'), 'status')
  FROM changed c JOIN conversations v ON v.organization_id = c.organization_id AND v.id = c.conversation_id
)
SELECT c.organization_id, c.reply_id, c.n, c.conversation_id, c.before, c.state, c.new_error AS error, r.kind, r.item_id,
  v.channel, v.account
FROM changed c
JOIN replies r ON r.organization_id = c.organization_id AND r.id = c.reply_id
JOIN conversations v ON v.organization_id = c.organization_id AND v.id = c.conversation_id

-- name: cancel_after_failure
-- A failed part cancels what follows it in the same reply.
WITH gone AS (
  UPDATE parts p SET state = 'cancelled', updated_at = now()
  FROM jsonb_to_recordset(%(rows)s) AS r(organization_id text, reply_id uuid, n int)
  WHERE p.organization_id = r.organization_id AND p.reply_id = r.reply_id AND p.n > r.n AND p.state = 'pending'
  RETURNING p.organization_id, p.conversation_id, p.reply_id, p.n
)
INSERT INTO events (organization_id, conversation_id, entity, entity_id, from_state, to_state, actor, by, why)
SELECT organization_id, conversation_id, 'part', reply_id || ':' || n, 'pending', 'cancelled', %(actor)s, %(by)s,
  'an earlier part failed' FROM gone

-- name: part_of_echo
-- Whether an echo is a part of ours, already known by its provider id.
SELECT p.conversation_id, p.reply_id, p.n FROM parts p
WHERE p.organization_id = %(organization_id)s AND p.provider_message_id = %(provider_id)s

-- name: in_flight_parts
-- Parts whose sending may be what an unknown echo shows; the same text settles them.
SELECT p.reply_id, p.n, p.text, p.state,
  (SELECT max(d.n) FROM deliveries d WHERE d.organization_id = p.organization_id AND d.reply_id = p.reply_id AND d.part = p.n) AS delivery
FROM parts p
WHERE p.organization_id = %(organization_id)s AND p.conversation_id = %(conversation_id)s AND p.state IN ('sending', 'unknown')
ORDER BY p.position

-- name: hold_echo
INSERT INTO held_echoes (organization_id, channel, account, provider_id, conversation_id, text, sent_at, raw)
SELECT organization_id, channel, account, provider_id, conversation_id, text, sent_at, raw
FROM jsonb_to_recordset(%(rows)s) AS r(organization_id text, channel text, account text, provider_id text,
  conversation_id uuid, text text, sent_at timestamptz, raw jsonb)
ON CONFLICT DO NOTHING

-- name: drop_echoes
-- An echo whose provider id turned out to be one of ours is no person.
DELETE FROM held_echoes e USING parts p
WHERE p.organization_id = e.organization_id AND p.provider_message_id = e.provider_id
RETURNING e.organization_id, e.provider_id

-- name: ripe_echoes
-- Held echoes of conversations where nothing of ours is in flight any more: a person wrote them. One snapshot decides:
-- the part may have been accepted since the known echoes were dropped.
SELECT e.organization_id, e.channel, e.account, e.provider_id, e.conversation_id, e.text, e.sent_at
FROM held_echoes e
WHERE NOT EXISTS (SELECT 1 FROM parts p WHERE p.organization_id = e.organization_id
  AND p.conversation_id = e.conversation_id AND p.state IN ('sending', 'unknown'))
  AND NOT EXISTS (SELECT 1 FROM parts p WHERE p.organization_id = e.organization_id AND p.provider_message_id = e.provider_id)
ORDER BY e.sent_at LIMIT 100

-- name: delete_echo
DELETE FROM held_echoes WHERE organization_id = %(organization_id)s AND channel = %(channel)s AND account = %(account)s
  AND provider_id = %(provider_id)s RETURNING provider_id

-- name: settle
-- Evidence, or a person's word, ends an unknown: with its id when one is known.
WITH before AS MATERIALIZED (
  SELECT p.organization_id, p.reply_id, p.n, p.state, p.conversation_id FROM parts p
  WHERE p.organization_id = %(organization_id)s AND p.reply_id = %(reply_id)s AND p.n = %(n)s
    AND p.state IN ('unknown', 'failed') FOR UPDATE
), moved AS (
  UPDATE parts p SET state = %(state)s, provider_message_id = coalesce(%(provider_message_id)s, p.provider_message_id),
    accepted_at = CASE WHEN %(state)s = 'accepted' THEN now() ELSE p.accepted_at END,
    failed_at = CASE WHEN %(state)s = 'failed' THEN now() ELSE p.failed_at END,
    due_at = now(), attempts = CASE WHEN %(state)s = 'pending' THEN 0 ELSE p.attempts END, reconcile_at = NULL, updated_at = now()
  FROM before b
  WHERE p.organization_id = b.organization_id AND p.reply_id = b.reply_id AND p.n = b.n
    AND (b.state <> 'failed' OR %(state)s = 'pending')
  RETURNING p.organization_id, p.reply_id, p.n, p.conversation_id, b.state AS before, p.state
), closed AS (
  UPDATE deliveries d SET outcome = CASE %(state)s WHEN 'accepted' THEN 'accepted' ELSE 'given_up' END,
    provider_message_id = coalesce(%(provider_message_id)s, d.provider_message_id), ended_at = coalesce(d.ended_at, now())
  FROM moved m
  WHERE d.organization_id = m.organization_id AND d.reply_id = m.reply_id AND d.part = m.n
    AND (d.outcome IS NULL OR d.outcome = 'unknown')
), logged AS (
  INSERT INTO events (organization_id, conversation_id, entity, entity_id, from_state, to_state, actor, by, why)
  SELECT organization_id, conversation_id, 'part', reply_id || ':' || n, before, state, %(actor)s, %(by)s, %(why)s FROM moved
)
SELECT reply_id, n, conversation_id, before, state FROM moved
