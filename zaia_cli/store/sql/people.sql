-- What people do: approvals, retries, cancellations, priorities.

-- name: open_approval
-- The call that waits is journalled too, so that its decision finds it.
WITH call AS (
  INSERT INTO tool_executions (organization_id, item_id, step, ordinal, call_id, name, arguments, state, side_effect)
  VALUES (%(organization_id)s, %(item_id)s, %(step)s, %(ordinal)s, %(call_id)s, %(tool)s, %(arguments)s, 'waiting_approval', true)
  ON CONFLICT DO NOTHING
)
INSERT INTO approvals (organization_id, id, conversation_id, item_id, step, ordinal, tool, arguments, assignee)
VALUES (%(organization_id)s, %(id)s, %(conversation_id)s, %(item_id)s, %(step)s, %(ordinal)s, %(tool)s, %(arguments)s, %(assignee)s)
ON CONFLICT DO NOTHING

-- name: find_approval
SELECT p.organization_id, p.conversation_id, p.item_id, p.tool, p.state, i.reference, i.class
FROM approvals p JOIN work_items i ON i.organization_id = p.organization_id AND i.id = p.item_id
WHERE p.organization_id = %(organization_id)s AND p.id = %(approval_id)s

-- name: decide
UPDATE approvals SET state = %(state)s, decided_by = %(by)s, decided_at = now(), why = %(why)s
WHERE organization_id = %(organization_id)s AND id = %(approval_id)s AND state = 'waiting'
RETURNING id

-- name: find_item
SELECT i.organization_id, i.id AS item_id, i.conversation_id, i.reference, i.state, i.class, i.last_seq <= h.done_until AS is_answered
FROM work_items i JOIN hot h ON h.organization_id = i.organization_id AND h.conversation_id = i.conversation_id
WHERE i.organization_id = %(organization_id)s AND i.id = %(item_id)s

-- name: reset_attempts
UPDATE work_items SET attempts = 0, yields = 0 WHERE organization_id = %(organization_id)s AND id = %(item_id)s

-- name: cancel_item
-- The lease goes too; what the item would have answered counts as done, and another item of the conversation goes on.
WITH item AS (
  UPDATE work_items i SET state = 'cancelled', due_at = NULL, updated_at = now()
  WHERE i.organization_id = %(organization_id)s AND i.id = %(item_id)s
  RETURNING i.organization_id, i.conversation_id, i.id, i.first_seq, i.last_seq
), other AS (
  SELECT w.state, w.first_seq, w.due_at FROM item i
  JOIN work_items w ON w.organization_id = i.organization_id AND w.conversation_id = i.conversation_id AND w.id <> i.id
    AND w.state IN ('pending', 'processing', 'waiting_approval')
), unasked AS (
  UPDATE messages m SET starts_turn = false FROM item i
  WHERE m.organization_id = i.organization_id AND m.conversation_id = i.conversation_id
    AND m.seq BETWEEN i.first_seq AND i.last_seq AND EXISTS (SELECT FROM other WHERE state <> 'pending')
), closed AS (
  UPDATE attempts a SET state = 'cancelled', ended_at = now() FROM item i
  WHERE a.organization_id = i.organization_id AND a.item_id = i.id AND a.state = 'running'
), undecided AS (
  UPDATE approvals p SET state = 'rejected', decided_at = now(), decided_by = %(by)s, why = 'the request was cancelled' FROM item i
  WHERE p.organization_id = i.organization_id AND p.item_id = i.id AND p.state = 'waiting'
)
UPDATE hot h SET token = CASE WHEN %(held)s THEN NULL ELSE h.token END,
  lease_holder = CASE WHEN %(held)s THEN NULL ELSE h.lease_holder END,
  lease_until = CASE WHEN %(held)s THEN NULL ELSE h.lease_until END,
  done_until = CASE WHEN EXISTS (SELECT FROM other WHERE state <> 'pending') THEN h.done_until
    ELSE greatest(h.done_until, least(i.last_seq, (SELECT first_seq - 1 FROM other WHERE state = 'pending'))) END,
  due_at = (SELECT due_at FROM other WHERE state = 'pending')
FROM item i WHERE h.organization_id = i.organization_id AND h.conversation_id = i.conversation_id

-- name: prioritize
WITH item AS (
  UPDATE work_items i SET class = %(item_class)s, class_rule = %(rule)s, updated_at = now()
  WHERE i.organization_id = %(organization_id)s AND i.id = %(item_id)s
  RETURNING i.organization_id, i.conversation_id
)
UPDATE hot h SET band = %(band)s FROM item i
WHERE h.organization_id = i.organization_id AND h.conversation_id = i.conversation_id

-- name: find_part
SELECT p.organization_id, p.conversation_id, p.state, r.kind FROM parts p
JOIN replies r ON r.organization_id = p.organization_id AND r.id = p.reply_id
WHERE p.reply_id = %(reply_id)s AND p.n = %(n)s

-- name: open_sends
SELECT p.organization_id, p.conversation_id, p.reply_id || ':' || p.n AS part, p.state, p.error, left(p.text, 120) AS text,
  r.kind, c.channel, c.address, coalesce(p.unknown_at, p.failed_at, p.sending_at) AS since, p.reconcile_at IS NOT NULL AS is_task
FROM parts p
JOIN replies r ON r.organization_id = p.organization_id AND r.id = p.reply_id
JOIN conversations c ON c.organization_id = p.organization_id AND c.id = p.conversation_id
WHERE p.state IN ('unknown', 'failed', 'sending')
  AND coalesce(p.unknown_at, p.failed_at, p.sending_at) <= now() - make_interval(secs => %(older_than_s)s)
ORDER BY since
