-- What the demonstration shows of its own conversations.

-- name: conversations
SELECT c.channel, c.address, h.owner,
  (SELECT count(*) FROM messages m WHERE m.organization_id = c.organization_id AND m.conversation_id = c.id AND m.role = 'customer') AS messages,
  (SELECT count(*) FROM replies r WHERE r.organization_id = c.organization_id AND r.conversation_id = c.id) AS replies,
  (SELECT string_agg(r.text, ' / ' ORDER BY r.created_at) FROM replies r
    WHERE r.organization_id = c.organization_id AND r.conversation_id = c.id) AS said,
  (SELECT string_agg(p.state, ',' ORDER BY p.position) FROM parts p
    WHERE p.organization_id = c.organization_id AND p.conversation_id = c.id) AS parts,
  (SELECT i.reference || ' ' || i.state FROM work_items i
    WHERE i.organization_id = c.organization_id AND i.conversation_id = c.id ORDER BY i.opened_at LIMIT 1) AS item
FROM conversations c JOIN hot h ON h.organization_id = c.organization_id AND h.conversation_id = c.id
WHERE c.organization_id = %(organization_id)s AND c.address = ANY(%(addresses)s::text[])

-- name: unknown_send
-- The delivery whose outcome is not known, for the status that settles it.
SELECT d.opaque_id FROM deliveries d
JOIN parts p ON p.organization_id = d.organization_id AND p.reply_id = d.reply_id AND p.n = d.part
JOIN conversations c ON c.organization_id = p.organization_id AND c.id = p.conversation_id
WHERE c.organization_id = %(organization_id)s AND c.address = %(address)s AND p.state = 'unknown'

-- name: unsettled
-- Parts of the demonstration that are still on their way.
SELECT count(*) AS n FROM parts p
JOIN conversations c ON c.organization_id = p.organization_id AND c.id = p.conversation_id
WHERE c.organization_id = %(organization_id)s AND c.address = ANY(%(addresses)s::text[])
  AND c.channel = 'whatsapp' AND p.state IN ('pending', 'sending', 'accepted', 'sent', 'unknown')
