-- Events, alerts: written in the transaction of what they tell.

-- name: insert
INSERT INTO events (organization_id, conversation_id, item_id, entity, entity_id, from_state, to_state, actor, by, why, trace_id)
SELECT organization_id, conversation_id, item_id, entity, entity_id, from_state, to_state, actor, by, coalesce(why, ''), trace_id
FROM ROWS FROM (jsonb_to_recordset(%(rows)s) AS (organization_id text, conversation_id uuid, item_id uuid, entity text,
  entity_id text, from_state text, to_state text, actor text, by text, why text, trace_id text)) WITH ORDINALITY AS r
ORDER BY ordinality

-- name: raise_alerts
-- An alert that still waits to be sent swallows its repetitions.
INSERT INTO alerts (organization_id, id, kind, dedupe_key, message, recipient, data)
SELECT DISTINCT ON (organization_id, kind, dedupe_key) organization_id, gen_random_uuid(), kind, dedupe_key, message,
  coalesce(recipient, ''), coalesce(data, '{}')
FROM jsonb_to_recordset(%(rows)s) AS r(organization_id text, kind text, dedupe_key text, message text, recipient text, data jsonb)
ON CONFLICT (organization_id, kind, dedupe_key) WHERE state = 'pending'
DO UPDATE SET occurrences = alerts.occurrences + 1

-- name: due_alerts
-- Alerts to send now; pushed ahead so that another process does not send them too.
UPDATE alerts a SET due_at = now() + make_interval(secs => 30 * (a.attempts + 1)), attempts = a.attempts + 1
FROM (SELECT organization_id, id FROM alerts WHERE state = 'pending' AND due_at <= now()
      ORDER BY due_at LIMIT 20 FOR UPDATE SKIP LOCKED) d
WHERE a.organization_id = d.organization_id AND a.id = d.id
RETURNING a.organization_id, a.id, a.kind, a.message, a.recipient, a.data, a.occurrences, a.attempts, a.created_at

-- name: finish_alerts
UPDATE alerts a SET state = r.state, error = r.error, sent_at = CASE WHEN r.state = 'sent' THEN now() END
FROM jsonb_to_recordset(%(rows)s) AS r(organization_id text, id uuid, state text, error text)
WHERE a.organization_id = r.organization_id AND a.id = r.id AND a.state = 'pending'
