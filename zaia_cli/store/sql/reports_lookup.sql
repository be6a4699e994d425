-- name: by_id
-- A UUID that names a conversation, a work item, a reply or a message. One row per thing found.
SELECT c.organization_id, c.id AS conversation_id, NULL::uuid AS item_id, NULL::uuid AS reply_id, 'conversation' AS kind
  FROM conversations c
 WHERE c.id = %(id)s AND (CAST(%(organization)s AS text) IS NULL OR c.organization_id = %(organization)s)
UNION ALL
SELECT i.organization_id, i.conversation_id, i.id, NULL, 'item'
  FROM work_items i
 WHERE i.id = %(id)s AND (CAST(%(organization)s AS text) IS NULL OR i.organization_id = %(organization)s)
UNION ALL
SELECT r.organization_id, r.conversation_id, r.item_id, r.id, 'reply'
  FROM replies r
 WHERE r.id = %(id)s AND (CAST(%(organization)s AS text) IS NULL OR r.organization_id = %(organization)s)
UNION ALL
SELECT m.organization_id, m.conversation_id, coalesce(m.item_id, covering.id), NULL, 'message'
  FROM messages m
  LEFT JOIN LATERAL (
       SELECT i.id FROM work_items i
        WHERE i.organization_id = m.organization_id AND i.conversation_id = m.conversation_id
          AND m.seq BETWEEN i.first_seq AND i.last_seq
        ORDER BY i.state = 'cancelled', i.opened_at DESC LIMIT 1) covering ON true
 WHERE m.id = %(id)s AND (CAST(%(organization)s AS text) IS NULL OR m.organization_id = %(organization)s)

-- name: by_reference
-- A reference number. An alias wins over the absorbed item that once carried the number: the work went on there.
SELECT a.organization_id, i.conversation_id, i.id AS item_id, NULL::uuid AS reply_id, 'item' AS kind
  FROM item_aliases a
  JOIN work_items i ON i.organization_id = a.organization_id AND i.id = a.item_id
 WHERE a.reference = %(reference)s AND (CAST(%(organization)s AS text) IS NULL OR a.organization_id = %(organization)s)
UNION ALL
SELECT i.organization_id, i.conversation_id, i.id, NULL, 'item'
  FROM work_items i
 WHERE i.reference = %(reference)s AND (CAST(%(organization)s AS text) IS NULL OR i.organization_id = %(organization)s)
   AND NOT EXISTS (SELECT FROM item_aliases a
                    WHERE a.organization_id = i.organization_id AND a.reference = i.reference)

-- name: by_provider_id
-- A channel's id of a message that came in or went out, or our opaque id of one delivery.
SELECT m.organization_id, m.conversation_id, coalesce(m.item_id, covering.id) AS item_id, NULL::uuid AS reply_id,
       'message' AS kind
  FROM messages m
  LEFT JOIN LATERAL (
       SELECT i.id FROM work_items i
        WHERE i.organization_id = m.organization_id AND i.conversation_id = m.conversation_id
          AND m.seq BETWEEN i.first_seq AND i.last_seq
        ORDER BY i.state = 'cancelled', i.opened_at DESC LIMIT 1) covering ON true
 WHERE m.provider_id = %(provider_id)s AND m.role = 'customer'
   AND (CAST(%(organization)s AS text) IS NULL OR m.organization_id = %(organization)s)
UNION
SELECT r.organization_id, r.conversation_id, r.item_id, r.id, 'reply'
  FROM parts p
  JOIN replies r ON r.organization_id = p.organization_id AND r.id = p.reply_id
 WHERE p.provider_message_id = %(provider_id)s
   AND (CAST(%(organization)s AS text) IS NULL OR p.organization_id = %(organization)s)
UNION
SELECT r.organization_id, r.conversation_id, r.item_id, r.id, 'reply'
  FROM deliveries d
  JOIN replies r ON r.organization_id = d.organization_id AND r.id = d.reply_id
 WHERE (d.provider_message_id = %(provider_id)s OR d.opaque_id = %(provider_id)s)
   AND (CAST(%(organization)s AS text) IS NULL OR d.organization_id = %(organization)s)

-- name: by_other_provider_id
-- What has no row of its own above: a person's message from the phone, an edit, a reaction. The conversation it belongs to.
SELECT m.organization_id, m.conversation_id, m.item_id, NULL::uuid AS reply_id, 'message' AS kind
  FROM messages m
 WHERE m.provider_id = %(provider_id)s AND m.role <> 'customer'
   AND (CAST(%(organization)s AS text) IS NULL OR m.organization_id = %(organization)s)

-- name: by_address
-- Conversations of one channel whose address, or whose contact's known alias, is one of the given forms.
SELECT c.organization_id, c.id AS conversation_id, NULL::uuid AS item_id, NULL::uuid AS reply_id, 'conversation' AS kind
  FROM conversations c
 WHERE c.channel = %(channel)s AND (CAST(%(organization)s AS text) IS NULL OR c.organization_id = %(organization)s)
   AND (c.address = ANY(CAST(%(addresses)s AS text[]))
        OR EXISTS (SELECT FROM contact_aliases a
                    WHERE a.organization_id = c.organization_id AND a.contact_id = c.contact_id
                      AND a.alias = ANY(CAST(%(aliases)s AS text[]))))
 ORDER BY c.organization_id, c.created_at

-- name: describe
-- The words by which a person tells candidates apart.
SELECT c.organization_id, c.id AS conversation_id, c.channel, c.account, c.thread, c.address, c.created_at
  FROM conversations c
 WHERE c.organization_id = ANY(CAST(%(organizations)s AS text[])) AND c.id = ANY(CAST(%(conversations)s AS uuid[]))
 ORDER BY c.organization_id, c.created_at
