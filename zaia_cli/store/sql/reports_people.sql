-- name: handoffs
-- The human lane: open handoffs first, the longest waiting on top.
SELECT h.organization_id AS organization, h.id, h.conversation_id, c.channel, c.address, k.name AS contact,
       d.name AS department, h.assignee, h.reason, h.note, h.state, h.created_at, h.resolved_at, h.resolved_by,
       i.reference, w.owner, w.owner_name, extract(epoch FROM now() - h.created_at) AS age_s,
       (SELECT count(*) FROM messages m
         WHERE m.organization_id = h.organization_id AND m.conversation_id = h.conversation_id AND m.seq > w.done_until)
       AS unanswered
  FROM handoffs h
  JOIN conversations c ON c.organization_id = h.organization_id AND c.id = h.conversation_id
  JOIN contacts k ON k.organization_id = c.organization_id AND k.id = c.contact_id
  LEFT JOIN hot w ON w.organization_id = h.organization_id AND w.conversation_id = h.conversation_id
  LEFT JOIN departments d ON d.organization_id = h.organization_id AND d.id = h.department_id
  LEFT JOIN work_items i ON i.organization_id = h.organization_id AND i.id = h.item_id
 WHERE (CAST(%(organization)s AS text) IS NULL OR h.organization_id = %(organization)s)
   AND (CAST(%(state)s AS text) IS NULL OR h.state = %(state)s)
   AND (CAST(%(assignee)s AS text) IS NULL OR h.assignee = %(assignee)s)
 ORDER BY h.state <> 'open', CASE WHEN h.state = 'open' THEN h.created_at END, h.resolved_at DESC, h.id
 LIMIT %(limit)s

-- name: approvals
-- Decisions that wait for a person, the longest waiting on top; decided ones after them.
SELECT a.organization_id AS organization, a.id, a.conversation_id, c.channel, c.address, i.reference, a.step, a.ordinal,
       a.tool, a.arguments, a.state, a.assignee, a.decided_by, a.why, a.created_at, a.decided_at,
       extract(epoch FROM now() - a.created_at) AS age_s
  FROM approvals a
  JOIN conversations c ON c.organization_id = a.organization_id AND c.id = a.conversation_id
  JOIN work_items i ON i.organization_id = a.organization_id AND i.id = a.item_id
 WHERE (CAST(%(organization)s AS text) IS NULL OR a.organization_id = %(organization)s)
   AND (CAST(%(state)s AS text) IS NULL OR a.state = %(state)s)
   AND (CAST(%(id)s AS uuid) IS NULL OR a.id = %(id)s)
 ORDER BY a.state <> 'waiting', CASE WHEN a.state = 'waiting' THEN a.created_at END, a.decided_at DESC, a.id
 LIMIT %(limit)s
