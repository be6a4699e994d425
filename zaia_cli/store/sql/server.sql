-- What the web server and the commands around the engine ask.

-- name: accounts
-- Every channel account with the names of the variables that hold its secrets; never a secret.
SELECT a.organization_id, a.channel, a.account, a.token_env, a.app_secret_env, a.verify_token_env
FROM channel_accounts a
ORDER BY a.channel, a.account

-- name: request_of_message
-- The item that covers a message of an account, by the sender's own id; without one, the latest of its conversation.
SELECT m.conversation_id, i.reference, i.state, i.class, i.result
FROM messages m
JOIN conversations c ON c.organization_id = m.organization_id AND c.id = m.conversation_id
LEFT JOIN LATERAL (
  SELECT w.reference, w.state, w.class, w.result FROM work_items w
  WHERE w.organization_id = m.organization_id AND w.conversation_id = m.conversation_id
  ORDER BY m.seq BETWEEN w.first_seq AND w.last_seq DESC, w.state = 'cancelled', w.opened_at DESC
  LIMIT 1) i ON true
WHERE m.organization_id = %(organization_id)s AND c.channel = %(channel)s AND c.account = %(account)s
  AND m.provider_id = %(provider_id)s AND m.role = 'customer'
ORDER BY m.position
LIMIT 1

-- name: latest_request
-- The number to quote when a message opened no item: that of its conversation's latest one.
SELECT w.conversation_id, w.reference, w.state, w.class, w.result
FROM work_items w
WHERE w.organization_id = %(organization_id)s AND w.conversation_id = %(conversation_id)s
ORDER BY w.opened_at DESC
LIMIT 1

-- name: part_states
-- Parts of replies by state.
SELECT p.state, count(*) AS parts FROM parts p GROUP BY p.state

-- name: assistants
-- What every assistant needs to answer: its models and its prompt.
SELECT a.organization_id, o.name, o.timezone, a.slug, a.model, a.fallback_models, a.prompt, a.prompt_version
FROM assistants a JOIN organizations o ON o.id = a.organization_id
ORDER BY a.organization_id, a.slug

-- name: models
-- Every model that an assistant may ask.
SELECT a.model FROM assistants a
UNION
SELECT f.model FROM assistants a CROSS JOIN LATERAL jsonb_array_elements_text(a.fallback_models) AS f(model)

-- name: worker_done
-- What one worker process did: attempts and sends by how they ended.
SELECT 'attempt' AS kind, a.state AS outcome, count(*) AS n FROM attempts a WHERE a.worker = %(worker)s GROUP BY a.state
UNION ALL
SELECT 'send', coalesce(d.outcome, 'unreported'), count(*) FROM deliveries d WHERE d.worker = %(worker)s GROUP BY 2

-- name: conversation_news
-- What was said to a customer since, and whether anything is still to come; a person's turn is not waited for.
SELECT
  (SELECT coalesce(jsonb_agg(jsonb_build_object('id', r.id, 'kind', r.kind, 'text', r.text, 'author', r.author)
      ORDER BY r.created_at, r.id), '[]')
    FROM replies r WHERE r.organization_id = %(organization_id)s AND r.conversation_id = %(conversation_id)s) AS replies,
  EXISTS (SELECT FROM work_items i
    WHERE i.organization_id = %(organization_id)s AND i.conversation_id = %(conversation_id)s
      AND i.state IN ('pending', 'processing')) AS is_waiting,
  (SELECT h.owner FROM hot h
    WHERE h.organization_id = %(organization_id)s AND h.conversation_id = %(conversation_id)s) AS owner

-- name: open_elsewhere
-- Work of other companies that a worker of this database would take along.
SELECT count(*) AS items FROM (
  SELECT 1 FROM work_items i WHERE i.organization_id <> %(organization_id)s AND i.state IN ('pending', 'processing')
  UNION ALL
  SELECT 1 FROM parts p WHERE p.organization_id <> %(organization_id)s AND p.state IN ('pending', 'sending')) x
