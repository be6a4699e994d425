-- Changing who owns a conversation. The hot row is locked first by every caller.

-- name: lock
SELECT h.conversation_id, h.owner, h.owner_name, h.seq, h.last_in, h.done_until, h.token, c.state, c.channel, c.account,
  c.address, o.settings
FROM hot h
JOIN conversations c ON c.organization_id = h.organization_id AND c.id = h.conversation_id
JOIN organizations o ON o.id = h.organization_id
WHERE h.organization_id = %(organization_id)s AND h.conversation_id = %(conversation_id)s
FOR UPDATE OF h

-- name: own
-- A person owns it: the token goes too, so that a running turn finds itself fenced out.
UPDATE hot SET owner = 'human', owner_name = %(name)s, token = NULL, lease_holder = NULL, lease_until = NULL,
  due_at = NULL, revised = false
WHERE organization_id = %(organization_id)s AND conversation_id = %(conversation_id)s

-- name: stop_items
-- What the agent had open ends; the item that failed keeps its error and goes to a person.
WITH before AS MATERIALIZED (
  SELECT organization_id, id, state FROM work_items
  WHERE organization_id = %(organization_id)s AND conversation_id = %(conversation_id)s
    AND state IN ('pending', 'processing', 'waiting_approval')
  FOR UPDATE
), stopped AS (
  UPDATE work_items i SET state = CASE WHEN i.id = %(item_id)s THEN 'needs_human' ELSE 'cancelled' END,
    error = CASE WHEN i.id = %(item_id)s THEN %(error)s ELSE i.error END, due_at = NULL, updated_at = now()
  FROM before b
  WHERE i.organization_id = b.organization_id AND i.id = b.id
  RETURNING i.organization_id, i.conversation_id, i.id, i.state, b.state AS before, i.trace_id
), closed AS (
  UPDATE attempts a SET state = CASE WHEN s.state = 'needs_human' THEN 'failed' ELSE 'cancelled' END, ended_at = now(),
    error = CASE WHEN s.state = 'needs_human' THEN %(error)s END
  FROM stopped s WHERE a.organization_id = s.organization_id AND a.item_id = s.id AND a.state = 'running'
), undecided AS (
  UPDATE approvals p SET state = 'rejected', decided_at = now(), decided_by = %(by)s, why = %(why)s
  FROM stopped s WHERE p.organization_id = s.organization_id AND p.item_id = s.id AND p.state = 'waiting'
), logged AS (
  INSERT INTO events (organization_id, conversation_id, item_id, entity, entity_id, from_state, to_state, actor, by, why, trace_id)
  SELECT organization_id, conversation_id, id, 'item', id::text, before, state, %(actor)s, %(by)s, %(why)s, trace_id FROM stopped
)
SELECT id, state FROM stopped

-- name: cancel_answers
-- The agent's answers that did not leave yet are not said any more.
WITH gone AS (
  UPDATE parts p SET state = 'cancelled', updated_at = now()
  FROM replies r
  WHERE p.organization_id = %(organization_id)s AND p.conversation_id = %(conversation_id)s AND p.state = 'pending'
    AND r.organization_id = p.organization_id AND r.id = p.reply_id AND r.kind = 'answer'
  RETURNING p.organization_id, p.conversation_id, p.reply_id, p.n
)
INSERT INTO events (organization_id, conversation_id, entity, entity_id, from_state, to_state, actor, by, why)
SELECT organization_id, conversation_id, 'part', reply_id || ':' || n, 'pending', 'cancelled', %(actor)s, %(by)s, %(why)s FROM gone

-- name: open_handoff
-- One open handoff per conversation; what comes back is new.
INSERT INTO handoffs (organization_id, id, conversation_id, item_id, department_id, assignee, reason, note)
VALUES (%(organization_id)s, %(id)s, %(conversation_id)s, %(item_id)s, %(department_id)s, %(assignee)s, %(reason)s, %(note)s)
ON CONFLICT (organization_id, conversation_id) WHERE state = 'open' DO NOTHING
RETURNING id

-- name: resolve_handoff
UPDATE handoffs SET state = 'resolved', resolved_at = now(), resolved_by = %(by)s
WHERE organization_id = %(organization_id)s AND conversation_id = %(conversation_id)s AND state = 'open'
RETURNING id, item_id

-- name: reassign_handoff
UPDATE handoffs SET assignee = %(assignee)s
WHERE organization_id = %(organization_id)s AND conversation_id = %(conversation_id)s AND state = 'open'
RETURNING id

-- name: rename_owner
UPDATE hot SET owner_name = %(name)s WHERE organization_id = %(organization_id)s AND conversation_id = %(conversation_id)s

-- name: answered_by_person
-- What a person said answers everything received until then.
UPDATE hot SET done_until = seq WHERE organization_id = %(organization_id)s AND conversation_id = %(conversation_id)s

-- name: give_back
-- The agent owns it again; what is still unanswered becomes due.
UPDATE hot SET owner = 'agent', owner_name = '', due_at = %(due_at)s, band = 1, rank = %(rank)s
WHERE organization_id = %(organization_id)s AND conversation_id = %(conversation_id)s

-- name: resolve_conversation
UPDATE conversations SET state = 'resolved' WHERE organization_id = %(organization_id)s AND id = %(conversation_id)s

-- name: resolve_items
-- A person resolved what the agent could not.
UPDATE work_items SET state = 'completed', completed_at = now(), updated_at = now(),
  result = jsonb_build_object('outcome', 'resolved_by_person', 'by', %(by)s::text)
WHERE organization_id = %(organization_id)s AND conversation_id = %(conversation_id)s AND state IN ('needs_human')
RETURNING id, trace_id

-- name: unanswered
SELECT seq, provider_id, text FROM messages
WHERE organization_id = %(organization_id)s AND conversation_id = %(conversation_id)s AND seq > %(done_until)s
  AND starts_turn AND deleted_at IS NULL
ORDER BY seq

-- name: now
SELECT now() AS now

-- name: contact
SELECT contact_id FROM conversations WHERE organization_id = %(organization_id)s AND id = %(conversation_id)s
