-- Claiming, checkpointing and committing turns. Every write matches the fencing token; zero rows means "you lost".

-- name: claim
-- The best due conversations of the agent without a lease: lease, item and attempt open in one statement.
WITH due AS MATERIALIZED (
  SELECT h.organization_id, h.conversation_id
  FROM hot h
  WHERE h.due_at <= now() AND h.owner = 'agent' AND h.token IS NULL
    AND NOT h.organization_id = ANY(%(full)s::text[])
    AND (%(channel)s::text IS NULL OR EXISTS (SELECT 1 FROM conversations c WHERE c.organization_id = h.organization_id
      AND c.id = h.conversation_id AND c.channel = %(channel)s))
    AND EXISTS (SELECT 1 FROM work_items i WHERE i.organization_id = h.organization_id
      AND i.conversation_id = h.conversation_id AND i.state = 'pending')
  ORDER BY h.band, h.rank
  LIMIT %(limit)s
  FOR UPDATE OF h SKIP LOCKED
), leased AS (
  UPDATE hot h SET lease_holder = %(worker)s, lease_until = now() + make_interval(secs => %(ttl_s)s),
    token = gen_random_uuid(), due_at = NULL, revised = false
  FROM due
  WHERE h.organization_id = due.organization_id AND h.conversation_id = due.conversation_id AND h.token IS NULL
  RETURNING h.organization_id, h.conversation_id, h.token, h.done_until, h.seq
), taken AS (
  UPDATE work_items i SET state = 'processing', attempts = i.attempts + 1, started_at = coalesce(i.started_at, now()),
    due_at = NULL, updated_at = now()
  FROM leased l
  WHERE i.organization_id = l.organization_id AND i.conversation_id = l.conversation_id AND i.state = 'pending'
  RETURNING i.organization_id, i.conversation_id, i.id, i.reference, i.class, i.attempts, i.source_message, i.trace_id, i.yields
), opened AS (
  INSERT INTO attempts (organization_id, id, item_id, n, worker)
  SELECT l.organization_id, l.token, t.id,
    1 + (SELECT count(*) FROM attempts a WHERE a.organization_id = t.organization_id AND a.item_id = t.id), %(worker)s
  FROM leased l JOIN taken t ON t.organization_id = l.organization_id AND t.conversation_id = l.conversation_id
), logged AS (
  INSERT INTO events (organization_id, conversation_id, item_id, entity, entity_id, from_state, to_state, actor, by, why, trace_id)
  SELECT organization_id, conversation_id, id, 'item', id::text, 'pending', 'processing', 'worker', %(worker)s,
    'attempt ' || attempts, trace_id
  FROM taken
)
SELECT l.organization_id, l.conversation_id, l.token, l.done_until, t.id AS item_id, t.reference, t.class, t.attempts,
  t.source_message, t.trace_id, t.yields, c.channel, c.account, c.assistant, c.address, c.state AS conversation_state,
  p.name AS contact_name, o.name AS organization_name, o.timezone, o.settings,
  a.prompt, a.prompt_version, a.model, a.fallback_models, a.tools, k.base_url, k.token_env
FROM leased l
LEFT JOIN taken t ON t.organization_id = l.organization_id AND t.conversation_id = l.conversation_id
JOIN conversations c ON c.organization_id = l.organization_id AND c.id = l.conversation_id
JOIN contacts p ON p.organization_id = c.organization_id AND p.id = c.contact_id
JOIN organizations o ON o.id = l.organization_id
JOIN channel_accounts k ON k.organization_id = c.organization_id AND k.channel = c.channel AND k.account = c.account
JOIN assistants a ON a.organization_id = c.organization_id AND a.slug = c.assistant

-- name: unlease
-- A lease without an item: the item ended between the claim's snapshot and its lock. What intake has set due stays due.
UPDATE hot h SET token = NULL, lease_holder = NULL, lease_until = NULL,
  due_at = coalesce(h.due_at, (SELECT i.due_at FROM work_items i WHERE i.organization_id = h.organization_id
    AND i.conversation_id = h.conversation_id AND i.state = 'pending'))
FROM jsonb_to_recordset(%(rows)s) AS r(organization_id text, conversation_id uuid, token uuid)
WHERE h.organization_id = r.organization_id AND h.conversation_id = r.conversation_id AND h.token = r.token

-- name: next_due
-- Seconds until the next conversation is due; null when none waits.
SELECT extract(epoch FROM min(due_at) - now())::float8 AS wait_s FROM hot WHERE due_at IS NOT NULL AND token IS NULL

-- name: history
-- What the turn reads: the latest messages, and every unanswered one however old. Read after the claim has committed.
SELECT m.conversation_id, m.seq, m.after_seq, m.role, m.kind, m.text, m.item_id, m.starts_turn, m.deleted_at IS NOT NULL AS is_deleted
FROM jsonb_to_recordset(%(rows)s) AS r(organization_id text, conversation_id uuid, done_until int)
CROSS JOIN LATERAL (
  (SELECT * FROM messages m WHERE m.organization_id = r.organization_id AND m.conversation_id = r.conversation_id
     AND m.after_seq <= r.done_until
   ORDER BY m.after_seq DESC, m.position DESC LIMIT %(limit)s)
  UNION ALL
  (SELECT * FROM messages m WHERE m.organization_id = r.organization_id AND m.conversation_id = r.conversation_id
     AND m.after_seq > r.done_until)
) m
ORDER BY m.conversation_id, m.after_seq, m.seq IS NULL, m.position

-- name: stored_steps
-- Steps of this item and tool steps of earlier ones, with the results of their calls.
SELECT i.conversation_id, s.item_id, s.n, s.model, s.answer, s.read_until, s.tokens, s.superseded,
  coalesce((SELECT jsonb_agg(jsonb_build_object('ordinal', e.ordinal, 'call_id', e.call_id, 'name', e.name, 'state', e.state,
      'result', e.result, 'side_effect', e.side_effect, 'approval', p.state, 'why', p.why) ORDER BY e.ordinal)
    FROM tool_executions e
    LEFT JOIN approvals p ON p.organization_id = e.organization_id AND p.item_id = e.item_id AND p.step = e.step AND p.ordinal = e.ordinal
    WHERE e.organization_id = s.organization_id AND e.item_id = s.item_id AND e.step = s.n), '[]') AS tools
FROM jsonb_to_recordset(%(rows)s) AS r(organization_id text, conversation_id uuid, item_id uuid)
JOIN work_items i ON i.organization_id = r.organization_id AND i.conversation_id = r.conversation_id
JOIN steps s ON s.organization_id = i.organization_id AND s.item_id = i.id
WHERE i.id = r.item_id OR (NOT s.superseded AND jsonb_array_length(s.answer->'tool_calls') > 0 AND i.opened_at > now() - interval '7 days')
ORDER BY i.opened_at, s.item_id, s.n

-- name: departments
SELECT organization_id, id, name, name_key, assignee FROM departments WHERE organization_id = ANY(%(organizations)s::text[]) ORDER BY name

-- name: save_steps
-- The model's answer is saved before its tools run; progress renews the lease.
WITH fence AS (
  UPDATE hot h SET lease_until = now() + make_interval(secs => r.ttl_s)
  FROM jsonb_to_recordset(%(rows)s) AS r(organization_id text, conversation_id uuid, token uuid, ttl_s float8)
  WHERE h.organization_id = r.organization_id AND h.conversation_id = r.conversation_id AND h.token = r.token
  RETURNING h.organization_id, h.conversation_id, h.token
)
INSERT INTO steps (organization_id, item_id, n, attempt_id, model, answer, read_until, tokens, latency_ms)
SELECT r.organization_id, r.item_id, r.n, r.token, r.model, r.answer, r.read_until, r.tokens, r.latency_ms
FROM jsonb_to_recordset(%(rows)s) AS r(organization_id text, conversation_id uuid, token uuid, item_id uuid, n int,
  model text, answer jsonb, read_until int, tokens int, latency_ms int)
JOIN fence f ON f.organization_id = r.organization_id AND f.conversation_id = r.conversation_id AND f.token = r.token
RETURNING attempt_id AS key

-- name: start_tools
-- The journal: a call is marked started before it acts. What comes back may act.
WITH fence AS (
  SELECT h.organization_id, h.conversation_id, h.token
  FROM jsonb_to_recordset(%(rows)s) AS r(organization_id text, conversation_id uuid, token uuid)
  JOIN hot h ON h.organization_id = r.organization_id AND h.conversation_id = r.conversation_id AND h.token = r.token
  FOR UPDATE OF h
)
INSERT INTO tool_executions (organization_id, item_id, step, ordinal, call_id, name, arguments, state, side_effect)
SELECT r.organization_id, r.item_id, r.step, r.ordinal, r.call_id, r.name, r.arguments, 'started', r.side_effect
FROM jsonb_to_recordset(%(rows)s) AS r(organization_id text, conversation_id uuid, token uuid, item_id uuid, step int,
  ordinal int, call_id text, name text, arguments jsonb, side_effect boolean)
JOIN fence f ON f.organization_id = r.organization_id AND f.conversation_id = r.conversation_id AND f.token = r.token
ON CONFLICT (organization_id, item_id, step, ordinal) DO UPDATE SET state = 'started', started_at = now()
  WHERE NOT tool_executions.side_effect OR tool_executions.state = 'waiting_approval'
RETURNING item_id AS key

-- name: finish_tools
-- Results are kept whoever still owns the conversation: the act has happened.
UPDATE tool_executions e SET state = r.state, result = r.result, ended_at = now()
FROM jsonb_to_recordset(%(rows)s) AS r(organization_id text, item_id uuid, step int, ordinal int, state text, result text)
WHERE e.organization_id = r.organization_id AND e.item_id = r.item_id AND e.step = r.step AND e.ordinal = r.ordinal
RETURNING e.item_id AS key

-- name: record_calls
-- The ledger is unfenced: money spent is recorded whoever spent it.
INSERT INTO model_calls (organization_id, item_id, step, try, conversation_id, attempt_id, assistant, prompt, prompt_version,
  prompt_sha256, model, provider_model, purpose, outcome, error, input_tokens, cache_read_tokens, cache_write_tokens,
  cache_write_1h_tokens, output_tokens, reasoning_tokens, usage_estimated, latency_ms, cost_usd, price)
SELECT organization_id, item_id, step, try, conversation_id, attempt_id, assistant, prompt, prompt_version, prompt_sha256,
  model, provider_model, purpose, outcome, error, input_tokens, cache_read_tokens, cache_write_tokens, cache_write_1h_tokens,
  output_tokens, reasoning_tokens, usage_estimated, latency_ms, cost_usd, price
FROM jsonb_to_recordset(%(rows)s) AS r(organization_id text, item_id uuid, step int, try int, conversation_id uuid,
  attempt_id uuid, assistant text, prompt text, prompt_version text, prompt_sha256 text, model text, provider_model text,
  purpose text, outcome text, error text, input_tokens int, cache_read_tokens int, cache_write_tokens int,
  cache_write_1h_tokens int, output_tokens int, reasoning_tokens int, usage_estimated boolean, latency_ms int,
  cost_usd numeric, price jsonb)
ON CONFLICT DO NOTHING
RETURNING attempt_id AS key

-- name: check
-- Between steps: who still owns what. No row: lost.
SELECT h.token AS key, h.owner, h.revised,
  EXISTS (SELECT 1 FROM work_items i WHERE i.organization_id = h.organization_id AND i.id = r.item_id AND i.state = 'processing') AS is_processing
FROM jsonb_to_recordset(%(rows)s) AS r(organization_id text, conversation_id uuid, token uuid, item_id uuid)
JOIN hot h ON h.organization_id = r.organization_id AND h.conversation_id = r.conversation_id AND h.token = r.token

-- name: commit
-- One commit per group of turns: fence, items, attempts, replies, parts, history and events, only of those that still own.
-- What stays due is read from the hot row alone: a concurrent intake has set it there, and a snapshot would miss its item.
WITH turn AS MATERIALIZED (
  SELECT * FROM jsonb_to_recordset(%(rows)s) AS r(organization_id text, conversation_id uuid, token uuid, item_id uuid,
    read_until int, result jsonb, reply_id uuid, text text, parts jsonb, source_message text, trace_id text, worker text,
    resolve boolean)
), fence AS (
  UPDATE hot h SET token = NULL, lease_holder = NULL, lease_until = NULL, revised = false,
    done_until = greatest(h.done_until, t.read_until),
    due_at = CASE WHEN h.last_in > t.read_until THEN h.due_at END
  FROM turn t
  WHERE h.organization_id = t.organization_id AND h.conversation_id = t.conversation_id AND h.token = t.token
    AND h.owner = 'agent' AND NOT h.revised
  RETURNING t.*
), item AS (
  UPDATE work_items i SET state = 'completed', result = f.result, read_until = f.read_until, completed_at = now(),
    error = NULL, updated_at = now()
  FROM fence f
  WHERE i.organization_id = f.organization_id AND i.id = f.item_id AND i.state = 'processing'
  RETURNING i.id
), covered AS (
  UPDATE work_items i SET state = 'completed', read_until = f.read_until, completed_at = now(), updated_at = now(),
    result = jsonb_build_object('covered_by', f.item_id, 'outcome', f.result->>'outcome')
  FROM fence f
  WHERE i.organization_id = f.organization_id AND i.conversation_id = f.conversation_id AND i.state = 'pending'
    AND i.last_seq <= f.read_until
  RETURNING i.organization_id, i.conversation_id, i.id, i.trace_id, f.worker
), closed AS (
  UPDATE attempts a SET state = 'succeeded', ended_at = now() FROM fence f
  WHERE a.organization_id = f.organization_id AND a.id = f.token
), conversation AS (
  UPDATE conversations c SET state = 'resolved' FROM fence f
  WHERE f.resolve AND c.organization_id = f.organization_id AND c.id = f.conversation_id
), reply AS (
  INSERT INTO replies (organization_id, id, conversation_id, item_id, kind, author, text, source_message, read_until)
  SELECT organization_id, reply_id, conversation_id, item_id, 'answer', 'agent', text, source_message, read_until
  FROM fence WHERE text <> ''
  ON CONFLICT DO NOTHING
  RETURNING organization_id, id
), part AS (
  INSERT INTO parts (organization_id, reply_id, n, conversation_id, text)
  SELECT f.organization_id, f.reply_id, p.n, f.conversation_id, p.text
  FROM fence f JOIN reply r ON r.organization_id = f.organization_id AND r.id = f.reply_id
  CROSS JOIN LATERAL jsonb_array_elements_text(f.parts) WITH ORDINALITY AS p(text, n)
  ORDER BY f.conversation_id, p.n
), remembered AS (
  INSERT INTO messages (organization_id, id, conversation_id, after_seq, role, kind, text, item_id, author)
  SELECT f.organization_id, gen_random_uuid(), f.conversation_id, f.read_until, 'agent', 'answer', f.text, f.item_id, 'agent'
  FROM fence f WHERE f.text <> ''
), logged AS (
  INSERT INTO events (organization_id, conversation_id, item_id, entity, entity_id, from_state, to_state, actor, by, why, trace_id)
  SELECT organization_id, conversation_id, item_id, 'item', item_id::text, 'processing', 'completed', 'worker', worker,
    coalesce(result->>'outcome', ''), trace_id
  FROM fence
  UNION ALL
  SELECT organization_id, conversation_id, id, 'item', id::text, 'pending', 'completed', 'worker', worker,
    'its messages were read by the turn before', trace_id
  FROM covered
)
SELECT token AS key FROM fence

-- name: commit_outcome
-- After a lost connection: did this attempt commit?
SELECT a.id AS key, a.state FROM jsonb_to_recordset(%(rows)s) AS r(organization_id text, token uuid)
JOIN attempts a ON a.organization_id = r.organization_id AND a.id = r.token

-- name: fence
-- Lock the hot row of a turn that ends otherwise than with an answer. No row: lost.
SELECT h.conversation_id, h.revised, h.seq, h.done_until FROM hot h
WHERE h.organization_id = %(organization_id)s AND h.conversation_id = %(conversation_id)s AND h.token = %(token)s
FOR UPDATE

-- name: complete_item
-- A turn that ended with a transfer: its item is done, the conversation is handed over in the same transaction.
UPDATE work_items SET state = 'completed', result = %(result)s, read_until = %(read_until)s, completed_at = now(), error = NULL,
  updated_at = now()
WHERE organization_id = %(organization_id)s AND id = %(item_id)s AND state = 'processing'
RETURNING id

-- name: mark_read
UPDATE hot SET done_until = greatest(done_until, %(read_until)s)
WHERE organization_id = %(organization_id)s AND conversation_id = %(conversation_id)s

-- name: end_attempt
UPDATE attempts SET state = %(state)s, error = %(error)s, ended_at = now()
WHERE organization_id = %(organization_id)s AND id = %(token)s AND state = 'running'

-- name: absorb_pending
-- An item that returns to pending absorbs the newer one: its reference becomes an alias.
WITH newer AS (
  UPDATE work_items n SET state = 'cancelled', updated_at = now(),
    result = jsonb_build_object('absorbed_by', %(item_id)s::uuid)
  WHERE n.organization_id = %(organization_id)s AND n.conversation_id = %(conversation_id)s AND n.state = 'pending'
    AND n.id <> %(item_id)s
  RETURNING n.organization_id, n.id, n.reference, n.class, n.class_rule, n.last_seq, n.source_message, n.conversation_id, n.trace_id
), alias AS (
  INSERT INTO item_aliases (organization_id, reference, item_id)
  SELECT organization_id, reference, %(item_id)s FROM newer ON CONFLICT DO NOTHING
), older AS (
  UPDATE item_aliases a SET item_id = %(item_id)s FROM newer
  WHERE a.organization_id = newer.organization_id AND a.item_id = newer.id
), logged AS (
  INSERT INTO events (organization_id, conversation_id, item_id, entity, entity_id, from_state, to_state, actor, by, why, trace_id)
  SELECT organization_id, conversation_id, id, 'item', id::text, 'pending', 'cancelled', %(actor)s, %(by)s,
    'absorbed by the earlier request', trace_id FROM newer
)
SELECT id, reference, class, class_rule, last_seq, source_message FROM newer

-- name: return_to_pending
-- Give an item back: the lease goes, the item waits. After an edit or revoke, stored final answers answer nothing any more.
WITH item AS (
  UPDATE work_items i SET state = 'pending', due_at = now() + make_interval(secs => %(wait_s)s), error = %(error)s,
    class = coalesce(%(item_class)s, i.class), class_rule = coalesce(%(class_rule)s, i.class_rule),
    last_seq = greatest(i.last_seq, %(last_seq)s), source_message = coalesce(%(source_message)s, i.source_message),
    attempts = i.attempts - CASE WHEN %(counts)s THEN 0 ELSE 1 END,
    yields = i.yields + CASE WHEN %(counts)s THEN 0 ELSE 1 END, updated_at = now()
  WHERE i.organization_id = %(organization_id)s AND i.id = %(item_id)s AND i.state IN ('processing', 'waiting_approval', 'needs_human', 'failed')
  RETURNING i.organization_id, i.conversation_id, i.id, i.due_at, i.class, i.trace_id
), stale AS (
  UPDATE steps s SET superseded = true FROM item i
  JOIN hot h ON h.organization_id = i.organization_id AND h.conversation_id = i.conversation_id AND h.revised
  WHERE s.organization_id = i.organization_id AND s.item_id = i.id AND jsonb_array_length(s.answer->'tool_calls') = 0
), freed AS (
  UPDATE hot h SET token = NULL, lease_holder = NULL, lease_until = NULL, revised = false, due_at = i.due_at,
    band = CASE i.class WHEN 'urgent' THEN 0 WHEN 'standard' THEN 1 ELSE 2 END
  FROM item i
  WHERE h.organization_id = i.organization_id AND h.conversation_id = i.conversation_id AND h.owner = 'agent'
), logged AS (
  INSERT INTO events (organization_id, conversation_id, item_id, entity, entity_id, from_state, to_state, actor, by, why, trace_id)
  SELECT organization_id, conversation_id, id, 'item', id::text, %(from_state)s, 'pending', %(actor)s, %(by)s, %(why)s, trace_id FROM item
)
SELECT id FROM item

-- name: park
-- Waiting for a person's decision: the lease goes, nothing is due.
WITH item AS (
  UPDATE work_items i SET state = 'waiting_approval', due_at = NULL, class = coalesce(%(item_class)s, i.class),
    class_rule = coalesce(%(class_rule)s, i.class_rule), last_seq = greatest(i.last_seq, %(last_seq)s),
    source_message = coalesce(%(source_message)s, i.source_message), updated_at = now()
  WHERE i.organization_id = %(organization_id)s AND i.id = %(item_id)s AND i.state = 'processing'
  RETURNING i.organization_id, i.conversation_id, i.id, i.trace_id
), freed AS (
  UPDATE hot h SET token = NULL, lease_holder = NULL, lease_until = NULL, due_at = NULL, revised = false FROM item i
  WHERE h.organization_id = i.organization_id AND h.conversation_id = i.conversation_id
), logged AS (
  INSERT INTO events (organization_id, conversation_id, item_id, entity, entity_id, from_state, to_state, actor, by, why, trace_id)
  SELECT organization_id, conversation_id, id, 'item', id::text, 'processing', 'waiting_approval', 'worker', %(by)s, %(why)s, trace_id FROM item
)
SELECT id FROM item

-- name: nothing_left
-- Every message of the item was taken back: it is cancelled and the conversation has nothing due.
WITH item AS (
  UPDATE work_items i SET state = 'cancelled', updated_at = now()
  WHERE i.organization_id = %(organization_id)s AND i.id = %(item_id)s AND i.state = 'processing'
  RETURNING i.organization_id, i.conversation_id, i.id, i.trace_id
), freed AS (
  UPDATE hot h SET token = NULL, lease_holder = NULL, lease_until = NULL, revised = false,
    done_until = greatest(h.done_until, %(read_until)s),
    due_at = CASE WHEN h.last_in > %(read_until)s THEN h.due_at END
  FROM item i WHERE h.organization_id = i.organization_id AND h.conversation_id = i.conversation_id
), logged AS (
  INSERT INTO events (organization_id, conversation_id, item_id, entity, entity_id, from_state, to_state, actor, by, why, trace_id)
  SELECT organization_id, conversation_id, id, 'item', id::text, 'processing', 'cancelled', 'worker', %(by)s,
    'nothing is left to answer', trace_id FROM item
)
SELECT id FROM item
