-- name: conversation
-- One conversation with its owner.
SELECT c.id, c.channel, c.account, c.thread, c.address, c.state, c.assistant, c.contact_id, k.name AS contact_name,
       coalesce(h.owner, 'agent') AS owner, coalesce(h.owner_name, '') AS owner_name, c.created_at, c.last_customer_at
  FROM conversations c
  JOIN contacts k ON k.organization_id = c.organization_id AND k.id = c.contact_id
  LEFT JOIN hot h ON h.organization_id = c.organization_id AND h.conversation_id = c.id
 WHERE c.organization_id = %(organization)s AND c.id = %(conversation_id)s

-- name: messages
-- Everything said, in the order in which it was written down.
SELECT m.id, m.seq, m.role, m.kind, m.text, m.provider_id, m.author, m.item_id, m.step, m.starts_turn, m.revisions,
       m.deleted_at, m.sent_at, m.created_at
  FROM messages m
 WHERE m.organization_id = %(organization)s AND m.conversation_id = %(conversation_id)s
 ORDER BY m.position

-- name: items
-- Work items of the conversation, with the other numbers under which people know them.
SELECT i.id, i.reference, i.class, i.class_rule, i.state, i.origin, i.requester, i.source_message, i.first_seq,
       i.last_seq, i.read_until, i.attempts, i.yields, i.due_at, i.opened_at, i.deadline_at, i.aged_at, i.overdue_at,
       i.ack_at, i.started_at, i.completed_at, i.result, i.error, i.trace_id,
       coalesce((SELECT array_agg(a.reference ORDER BY a.reference) FROM item_aliases a
                  WHERE a.organization_id = i.organization_id AND a.item_id = i.id), '{}') AS aliases
  FROM work_items i
 WHERE i.organization_id = %(organization)s AND i.conversation_id = %(conversation_id)s
   AND (CAST(%(item_id)s AS uuid) IS NULL OR i.id = %(item_id)s)
 ORDER BY i.opened_at, i.first_seq, i.id

-- name: attempts
-- Attempts of the conversation's items.
SELECT a.id, a.item_id, a.n, a.worker, a.state, a.error, a.started_at, a.ended_at
  FROM attempts a
  JOIN work_items i ON i.organization_id = a.organization_id AND i.id = a.item_id
 WHERE i.organization_id = %(organization)s AND i.conversation_id = %(conversation_id)s
   AND (CAST(%(item_id)s AS uuid) IS NULL OR i.id = %(item_id)s)
 ORDER BY a.item_id, a.n

-- name: steps
-- Steps, which belong to the item and name the attempt that made them.
SELECT s.item_id, s.n, s.attempt_id, s.model, s.answer, s.read_until, s.tokens, s.latency_ms, s.superseded, s.created_at
  FROM steps s
  JOIN work_items i ON i.organization_id = s.organization_id AND i.id = s.item_id
 WHERE i.organization_id = %(organization)s AND i.conversation_id = %(conversation_id)s
   AND (CAST(%(item_id)s AS uuid) IS NULL OR i.id = %(item_id)s)
 ORDER BY s.item_id, s.n

-- name: tools
-- The side-effect journal.
SELECT t.item_id, t.step, t.ordinal, t.call_id, t.name, t.arguments, t.state, t.side_effect, t.result, t.started_at,
       t.ended_at
  FROM tool_executions t
  JOIN work_items i ON i.organization_id = t.organization_id AND i.id = t.item_id
 WHERE i.organization_id = %(organization)s AND i.conversation_id = %(conversation_id)s
   AND (CAST(%(item_id)s AS uuid) IS NULL OR i.id = %(item_id)s)
 ORDER BY t.item_id, t.step, t.ordinal

-- name: model_calls
-- The ledger of the conversation's items, failed and fallback calls included.
SELECT m.item_id, m.attempt_id, m.step, m.try, m.purpose, m.model, m.provider_model, m.prompt, m.prompt_version,
       m.outcome, m.error, m.input_tokens, m.cache_read_tokens, m.cache_write_tokens, m.output_tokens,
       m.reasoning_tokens, m.usage_estimated, m.latency_ms, m.cost_usd, m.price, m.at
  FROM model_calls m
 WHERE m.organization_id = %(organization)s AND m.conversation_id = %(conversation_id)s
   AND (CAST(%(item_id)s AS uuid) IS NULL OR m.item_id = %(item_id)s)
 ORDER BY m.item_id, m.at, m.step, m.try

-- name: replies
-- What was to be said.
SELECT r.id, r.item_id, r.kind, r.author, r.text, r.source_message, r.read_until, r.created_at
  FROM replies r
 WHERE r.organization_id = %(organization)s AND r.conversation_id = %(conversation_id)s
   AND (CAST(%(item_id)s AS uuid) IS NULL OR r.item_id = %(item_id)s)
 ORDER BY r.created_at, r.id

-- name: parts
-- The parts of those replies and how far each got.
SELECT p.reply_id, p.n, p.text, p.state, p.attempts, p.waits, p.provider_message_id, p.error, p.due_at, p.sending_at,
       p.accepted_at, p.sent_at, p.delivered_at, p.read_at, p.failed_at, p.unknown_at
  FROM parts p
 WHERE p.organization_id = %(organization)s AND p.conversation_id = %(conversation_id)s
 ORDER BY p.reply_id, p.n

-- name: deliveries
-- Every send of every part.
SELECT d.reply_id, d.part, d.n, d.opaque_id, d.worker, d.outcome, d.provider_message_id, d.error, d.started_at,
       d.ended_at
  FROM deliveries d
  JOIN replies r ON r.organization_id = d.organization_id AND r.id = d.reply_id
 WHERE r.organization_id = %(organization)s AND r.conversation_id = %(conversation_id)s
 ORDER BY d.reply_id, d.part, d.n

-- name: statuses
-- What the channel said of those sends. Its id is on the part or on the delivery; each is looked up by the whole key.
SELECT x.reply_id, x.part, s.provider_message_id, s.status, s.at, s.error, s.received_at, s.applied_at
  FROM (SELECT p.reply_id, p.n AS part, p.provider_message_id
          FROM parts p
         WHERE p.organization_id = %(organization)s AND p.conversation_id = %(conversation_id)s
        UNION
        SELECT d.reply_id, d.part, d.provider_message_id
          FROM replies r
          JOIN deliveries d ON d.organization_id = r.organization_id AND d.reply_id = r.id
         WHERE r.organization_id = %(organization)s AND r.conversation_id = %(conversation_id)s) x
  JOIN conversations c ON c.organization_id = %(organization)s AND c.id = %(conversation_id)s
  JOIN statuses s ON s.organization_id = c.organization_id AND s.channel = c.channel AND s.account = c.account
                 AND s.provider_message_id = x.provider_message_id
 ORDER BY s.received_at, s.at

-- name: handoffs
-- Who holds, or held, the conversation and why.
SELECT h.id, h.item_id, d.name AS department, h.assignee, h.reason, h.note, h.state, h.created_at, h.resolved_at,
       h.resolved_by
  FROM handoffs h
  LEFT JOIN departments d ON d.organization_id = h.organization_id AND d.id = h.department_id
 WHERE h.organization_id = %(organization)s AND h.conversation_id = %(conversation_id)s
 ORDER BY h.created_at, h.id

-- name: approvals
-- Decisions asked of a person.
SELECT a.id, a.item_id, a.step, a.ordinal, a.tool, a.arguments, a.state, a.assignee, a.decided_by, a.why, a.created_at,
       a.decided_at
  FROM approvals a
 WHERE a.organization_id = %(organization)s AND a.conversation_id = %(conversation_id)s
 ORDER BY a.created_at, a.id

-- name: events
-- Who moved what, from where to where, and why. Rows of one transaction share a time; the id keeps their order.
SELECT e.id, e.item_id, e.entity, e.entity_id, e.from_state, e.to_state, e.actor, e.by, e.why, e.trace_id, e.at
  FROM events e
 WHERE e.organization_id = %(organization)s
   AND (e.conversation_id = %(conversation_id)s
        OR e.item_id IN (SELECT i.id FROM work_items i
                          WHERE i.organization_id = %(organization)s AND i.conversation_id = %(conversation_id)s))
 ORDER BY e.at, e.id

-- name: receipts
-- Which deliveries of the channel belong to the conversation, and how often each was repeated.
SELECT r.channel, r.account, r.kind, r.provider_id, r.repeats, r.received_at, r.repeated_at
  FROM receipts r
 WHERE r.organization_id = %(organization)s
   AND r.provider_id IN (SELECT m.provider_id FROM messages m
                          WHERE m.organization_id = %(organization)s AND m.conversation_id = %(conversation_id)s)
 ORDER BY r.received_at, r.provider_id

-- name: alerts
-- Alerts that name the conversation or one of its items in their data or key.
SELECT a.id, a.kind, a.dedupe_key, a.message, a.recipient, a.data, a.state, a.attempts, a.occurrences, a.created_at,
       a.sent_at, a.error
  FROM alerts a
 WHERE a.organization_id = %(organization)s
   AND EXISTS (SELECT FROM unnest(CAST(%(names)s AS text[])) AS names(name)
                WHERE position(names.name IN a.dedupe_key) > 0 OR position(names.name IN CAST(a.data AS text)) > 0)
 ORDER BY a.created_at, a.id
