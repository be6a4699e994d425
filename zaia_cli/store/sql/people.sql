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
