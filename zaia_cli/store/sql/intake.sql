-- Intake: dedupe first, number the survivors. One company per transaction, so every statement carries the organization.

-- name: routes
-- Which company an account belongs to, and what intake must know of it.
SELECT t.channel, t.account, t.organization_id, a.assistant, o.settings
FROM jsonb_to_recordset(%(rows)s) AS r(channel text, account text)
JOIN channel_routes t ON t.channel = r.channel AND t.account = r.account
JOIN channel_accounts a ON a.organization_id = t.organization_id AND a.channel = t.channel AND a.account = t.account
JOIN organizations o ON o.id = t.organization_id

-- name: insert_receipts
-- One row per provider message; what comes back is new.
INSERT INTO receipts (organization_id, channel, account, kind, provider_id)
SELECT organization_id, channel, account, kind, provider_id
FROM jsonb_to_recordset(%(rows)s) AS r(organization_id text, channel text, account text, kind text, provider_id text)
ORDER BY channel, account, kind, provider_id
ON CONFLICT DO NOTHING
RETURNING channel, account, kind, provider_id

-- name: count_repeats
-- Redeliveries are counted where they were first seen.
UPDATE receipts t SET repeats = t.repeats + r.n, repeated_at = now()
FROM jsonb_to_recordset(%(rows)s)
  AS r(organization_id text, channel text, account text, kind text, provider_id text, n int)
WHERE t.organization_id = r.organization_id AND t.channel = r.channel AND t.account = r.account
  AND t.kind = r.kind AND t.provider_id = r.provider_id

-- name: find_aliases
SELECT a.alias, a.contact_id
FROM jsonb_to_recordset(%(rows)s) AS r(organization_id text, alias text)
JOIN contact_aliases a ON a.organization_id = r.organization_id AND a.alias = r.alias

-- name: claim_aliases
-- Two first messages of one person meet here: the second waits for the first and finds its contact.
INSERT INTO contact_aliases (organization_id, alias, contact_id)
SELECT organization_id, alias, contact_id
FROM jsonb_to_recordset(%(rows)s) AS r(organization_id text, alias text, contact_id uuid)
ORDER BY alias
ON CONFLICT DO NOTHING

-- name: repoint_aliases
-- An alias claimed for a contact that lost the race moves to the winner.
UPDATE contact_aliases a SET contact_id = r.contact_id
FROM jsonb_to_recordset(%(rows)s) AS r(organization_id text, alias text, old_id uuid, contact_id uuid)
WHERE a.organization_id = r.organization_id AND a.alias = r.alias AND a.contact_id = r.old_id

-- name: insert_contacts
INSERT INTO contacts (organization_id, id, name, address)
SELECT organization_id, id, name, address
FROM jsonb_to_recordset(%(rows)s) AS r(organization_id text, id uuid, name text, address text)

-- name: ensure_conversations
INSERT INTO conversations (organization_id, id, contact_id, channel, account, thread, address, assistant)
SELECT organization_id, id, contact_id, channel, account, thread, address, assistant
FROM jsonb_to_recordset(%(rows)s) AS r(
  organization_id text, id uuid, contact_id uuid, channel text, account text, thread text, address text, assistant text)
ORDER BY contact_id, channel, account, thread
ON CONFLICT (organization_id, contact_id, channel, account, thread) DO NOTHING

-- name: ensure_hot
INSERT INTO hot (organization_id, conversation_id)
SELECT c.organization_id, c.id
FROM jsonb_to_recordset(%(rows)s) AS r(organization_id text, contact_id uuid, channel text, account text, thread text)
JOIN conversations c ON c.organization_id = r.organization_id AND c.contact_id = r.contact_id
  AND c.channel = r.channel AND c.account = r.account AND c.thread = r.thread
ORDER BY c.id
ON CONFLICT DO NOTHING

-- name: find_conversations
SELECT c.id, c.contact_id, c.channel, c.account, c.thread
FROM jsonb_to_recordset(%(rows)s) AS r(organization_id text, contact_id uuid, channel text, account text, thread text)
JOIN conversations c ON c.organization_id = r.organization_id AND c.contact_id = r.contact_id
  AND c.channel = r.channel AND c.account = r.account AND c.thread = r.thread

-- name: lock_conversations
-- The hot row is locked first, in the order of ids, before anything of a conversation is decided.
WITH locked AS MATERIALIZED (
  SELECT h.* FROM hot h
  WHERE h.organization_id = %(organization_id)s
    AND h.conversation_id = ANY(SELECT conversation_id FROM jsonb_to_recordset(%(rows)s) AS r(conversation_id uuid))
  ORDER BY h.conversation_id FOR UPDATE
)
SELECT h.conversation_id, h.owner, h.seq, h.last_in, h.done_until, h.due_at, h.band, h.rank, h.revised, h.token,
  c.state, c.assistant, c.contact_id, c.channel, c.account, c.address, clock_timestamp() AS now
FROM locked h
JOIN conversations c ON c.organization_id = h.organization_id AND c.id = h.conversation_id
ORDER BY h.conversation_id

-- name: open_items
-- The items of locked conversations that are not finished; read after the lock, so nothing newer exists.
SELECT i.id, i.conversation_id, i.reference, i.state, i.class, i.class_rule, i.first_seq, i.last_seq, i.opened_at, i.due_at
FROM jsonb_to_recordset(%(rows)s) AS r(conversation_id uuid)
JOIN work_items i ON i.organization_id = %(organization_id)s AND i.conversation_id = r.conversation_id
WHERE i.state IN ('pending', 'processing', 'waiting_approval')

-- name: find_messages
SELECT m.id, m.conversation_id, m.provider_id, m.seq, m.text, m.revisions, m.starts_turn, m.deleted_at
FROM jsonb_to_recordset(%(rows)s) AS r(conversation_id uuid, provider_id text)
JOIN messages m ON m.organization_id = %(organization_id)s AND m.provider_id = r.provider_id
  AND m.conversation_id = r.conversation_id AND m.role = 'customer'

-- name: unanswered
-- Inbound messages after done_until that still ask for an answer.
SELECT m.id, m.conversation_id, m.seq
FROM jsonb_to_recordset(%(rows)s) AS r(conversation_id uuid, done_until int)
JOIN messages m ON m.organization_id = %(organization_id)s AND m.conversation_id = r.conversation_id
  AND m.seq > r.done_until AND m.starts_turn AND m.deleted_at IS NULL

-- name: find_requests
-- Requests without an id, by key, young enough to be the same request.
SELECT DISTINCT ON (i.request_key) i.request_key, i.id, i.reference, i.state, i.result, i.conversation_id
FROM jsonb_to_recordset(%(rows)s) AS r(request_key text)
JOIN work_items i ON i.organization_id = %(organization_id)s AND i.request_key = r.request_key
WHERE i.opened_at > now() - make_interval(secs => %(window_s)s) AND i.state <> 'cancelled'
ORDER BY i.request_key, i.opened_at DESC

-- name: take_changes
-- Edits and revokes that came before their message.
DELETE FROM pending_changes p
USING jsonb_to_recordset(%(rows)s) AS r(organization_id text, channel text, account text, original_id text)
WHERE p.organization_id = r.organization_id AND p.channel = r.channel AND p.account = r.account
  AND p.original_id = r.original_id
RETURNING p.original_id, p.change, p.kind, p.text, p.sent_at

-- name: insert_changes
INSERT INTO pending_changes (organization_id, channel, account, original_id, change, provider_id, kind, text, sent_at, raw)
SELECT organization_id, channel, account, original_id, change, provider_id, kind, text, sent_at, raw
FROM jsonb_to_recordset(%(rows)s) AS r(organization_id text, channel text, account text, original_id text, change text,
  provider_id text, kind text, text text, sent_at timestamptz, raw jsonb)
ON CONFLICT DO NOTHING

-- name: insert_messages
INSERT INTO messages (organization_id, id, conversation_id, seq, after_seq, role, kind, text, provider_id, reply_to, item_id,
  author, starts_turn, fields, revisions, deleted_at, raw, sent_at)
SELECT organization_id, id, conversation_id, seq, after_seq, role, kind, text, provider_id, reply_to, item_id,
  coalesce(author, ''), coalesce(starts_turn, false), coalesce(fields, '{}'), coalesce(revisions, '[]'), deleted_at, raw,
  coalesce(sent_at, now())
FROM ROWS FROM (jsonb_to_recordset(%(rows)s) AS (organization_id text, id uuid, conversation_id uuid, seq int,
  after_seq int, role text, kind text, text text, provider_id text, reply_to text, item_id uuid, author text,
  starts_turn boolean, fields jsonb, revisions jsonb, deleted_at timestamptz, raw jsonb, sent_at timestamptz)) WITH ORDINALITY AS r
ORDER BY ordinality

-- name: revise_messages
UPDATE messages m SET text = r.text, revisions = r.revisions, deleted_at = r.deleted_at
FROM jsonb_to_recordset(%(rows)s) AS r(organization_id text, id uuid, text text, revisions jsonb, deleted_at timestamptz)
WHERE m.organization_id = r.organization_id AND m.id = r.id

-- name: save_items
INSERT INTO work_items (organization_id, id, conversation_id, reference, class, class_rule, state, origin, requester,
  request_key, source_message, first_seq, last_seq, due_at, opened_at, deadline_at, ack_at, trace_id)
SELECT organization_id, id, conversation_id, reference, class, class_rule, 'pending', origin, requester, request_key,
  source_message, first_seq, last_seq, due_at, opened_at, deadline_at, ack_at, trace_id
FROM jsonb_to_recordset(%(rows)s) AS r(organization_id text, id uuid, conversation_id uuid, reference text, class text,
  class_rule text, origin text, requester uuid, request_key text, source_message text, first_seq int, last_seq int,
  due_at timestamptz, opened_at timestamptz, deadline_at timestamptz, ack_at timestamptz, trace_id text)

-- name: extend_items
UPDATE work_items i SET last_seq = r.last_seq, class = r.class, class_rule = r.class_rule, due_at = r.due_at,
  deadline_at = least(i.deadline_at, r.deadline_at), source_message = coalesce(r.source_message, i.source_message),
  updated_at = now()
FROM jsonb_to_recordset(%(rows)s) AS r(organization_id text, id uuid, last_seq int, class text, class_rule text,
  due_at timestamptz, deadline_at timestamptz, source_message text)
WHERE i.organization_id = r.organization_id AND i.id = r.id AND i.state IN ('pending', 'waiting_approval')

-- name: update_hot
UPDATE hot h SET seq = r.seq, last_in = r.last_in, done_until = r.done_until, due_at = r.due_at, band = r.band,
  rank = r.rank, revised = r.revised
FROM jsonb_to_recordset(%(rows)s) AS r(organization_id text, conversation_id uuid, seq int, last_in int, done_until int,
  due_at timestamptz, band smallint, rank bigint, revised boolean)
WHERE h.organization_id = r.organization_id AND h.conversation_id = r.conversation_id

-- name: touch_conversations
UPDATE conversations c SET address = coalesce(r.address, c.address),
  last_customer_at = greatest(c.last_customer_at, r.last_customer_at),
  state = CASE WHEN r.reopen THEN 'open' ELSE c.state END
FROM jsonb_to_recordset(%(rows)s) AS r(organization_id text, id uuid, address text, last_customer_at timestamptz, reopen boolean)
WHERE c.organization_id = r.organization_id AND c.id = r.id

-- name: move_contact
-- The same person has a new number: known under both, answered at the new one.
UPDATE conversations c SET address = %(address)s
WHERE c.organization_id = %(organization_id)s AND c.contact_id = %(contact_id)s AND c.channel = %(channel)s

-- name: touch_account
-- The webhook path of this account is alive; written at most every ten seconds.
UPDATE channel_accounts SET last_event_at = now()
FROM jsonb_to_recordset(%(rows)s) AS r(organization_id text, channel text, account text)
WHERE channel_accounts.organization_id = r.organization_id AND channel_accounts.channel = r.channel
  AND channel_accounts.account = r.account
  AND (last_event_at IS NULL OR last_event_at < now() - interval '10 seconds')

-- name: insert_rejected
INSERT INTO rejected_inputs (organization_id, channel, account, path, reason, raw)
SELECT organization_id, channel, account, path, reason, raw
FROM jsonb_to_recordset(%(rows)s)
  AS r(organization_id text, channel text, account text, path text, reason text, raw jsonb)

-- name: cancel_items
-- Items whose every message was taken back before a turn read it.
WITH gone AS (
  UPDATE work_items i SET state = 'cancelled', due_at = NULL, updated_at = now()
  FROM jsonb_to_recordset(%(rows)s) AS r(organization_id text, id uuid, why text)
  WHERE i.organization_id = r.organization_id AND i.id = r.id AND i.state = 'pending'
  RETURNING i.organization_id, i.conversation_id, i.id, r.why, i.origin, i.trace_id
)
INSERT INTO events (organization_id, conversation_id, item_id, entity, entity_id, from_state, to_state, actor, by, why, trace_id)
SELECT organization_id, conversation_id, id, 'item', id::text, 'pending', 'cancelled', 'channel', origin, why, trace_id FROM gone

-- name: supersede_finals
-- An answer that an attempt stored and could not commit answers nothing any more.
UPDATE steps s SET superseded = true
FROM jsonb_to_recordset(%(rows)s) AS r(organization_id text, item_id uuid)
WHERE s.organization_id = r.organization_id AND s.item_id = r.item_id AND jsonb_array_length(s.answer->'tool_calls') = 0

-- name: recent_notices
-- Conversations that were told within the hour that something cannot be read.
SELECT DISTINCT p.conversation_id
FROM jsonb_to_recordset(%(rows)s) AS r(conversation_id uuid)
JOIN replies p ON p.organization_id = %(organization_id)s AND p.conversation_id = r.conversation_id
WHERE p.kind = 'notice' AND p.created_at > now() - interval '1 hour'
