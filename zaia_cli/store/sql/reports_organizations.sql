-- Organizations: written by `zaia org apply`, read by `org list|show|export`.

-- name: lock
-- Two applications of one file take turns; the organization's row may not exist yet.
SELECT pg_advisory_xact_lock(hashtextextended('zaia organization ' || %(slug)s, 0))

-- name: organization
SELECT o.id, o.name, o.timezone, o.settings, o.created_at
FROM organizations o WHERE o.id = %(slug)s

-- name: departments
SELECT d.id, d.name, d.name_key, d.assignee
FROM departments d WHERE d.organization_id = %(slug)s ORDER BY d.name_key

-- name: assistants
SELECT a.slug, a.prompt, a.prompt_version, a.model, a.fallback_models, a.tools, a.budgets
FROM assistants a WHERE a.organization_id = %(slug)s ORDER BY a.slug

-- name: accounts
SELECT c.channel, c.account, c.assistant, c.base_url, c.token_env, c.app_secret_env, c.verify_token_env, c.last_event_at
FROM channel_accounts c WHERE c.organization_id = %(slug)s ORDER BY c.channel, c.account

-- name: list
SELECT o.id AS organization, o.name, o.timezone, o.created_at,
  (SELECT count(*) FROM assistants a WHERE a.organization_id = o.id) AS assistants,
  (SELECT count(*) FROM departments d WHERE d.organization_id = o.id) AS departments,
  (SELECT count(*) FROM channel_accounts c WHERE c.organization_id = o.id) AS channels
FROM organizations o ORDER BY o.id

-- name: claim_routes
-- A route has one owner: what is there already stays, and a company that is writing it now is waited for.
INSERT INTO channel_routes (channel, account, organization_id)
SELECT r.channel, r.account, %(slug)s
FROM jsonb_to_recordset(%(rows)s) AS r(channel text, account text)
ORDER BY r.channel, r.account
ON CONFLICT (channel, account) DO NOTHING

-- name: foreign_routes
SELECT t.channel, t.account
FROM jsonb_to_recordset(%(rows)s) AS r(channel text, account text)
JOIN channel_routes t ON t.channel = r.channel AND t.account = r.account AND t.organization_id <> %(slug)s
ORDER BY t.channel, t.account

-- name: put_organization
-- Settings that the file does not know are left alone.
INSERT INTO organizations (id, name, timezone, settings)
SELECT r.id, r.name, r.timezone, r.settings
FROM jsonb_to_recordset(%(rows)s) AS r(id text, name text, timezone text, settings jsonb)
ON CONFLICT (id) DO UPDATE SET name = excluded.name, timezone = excluded.timezone,
  settings = organizations.settings || excluded.settings

-- name: put_departments
INSERT INTO departments (organization_id, id, name, name_key, assignee)
SELECT %(slug)s, r.id, r.name, r.name_key, r.assignee
FROM jsonb_to_recordset(%(rows)s) AS r(id uuid, name text, name_key text, assignee text)
ON CONFLICT (organization_id, name_key) DO UPDATE SET name = excluded.name, assignee = excluded.assignee

-- name: put_assistants
-- The file decides, until prompts are published.
INSERT INTO assistants (organization_id, slug, prompt, prompt_version, model, fallback_models, tools, budgets)
SELECT %(slug)s, r.slug, r.prompt, r.prompt_version, r.model, r.fallback_models, r.tools, r.budgets
FROM jsonb_to_recordset(%(rows)s) AS r(slug text, prompt text, prompt_version text, model text, fallback_models jsonb,
  tools jsonb, budgets jsonb)
ON CONFLICT (organization_id, slug) DO UPDATE SET prompt = excluded.prompt, model = excluded.model,
  fallback_models = excluded.fallback_models, tools = excluded.tools, budgets = excluded.budgets,
  prompt_version = excluded.prompt_version

-- name: put_accounts
INSERT INTO channel_accounts (organization_id, channel, account, assistant, base_url, token_env, app_secret_env,
  verify_token_env)
SELECT %(slug)s, r.channel, r.account, r.assistant, r.base_url, r.token_env, r.app_secret_env, r.verify_token_env
FROM jsonb_to_recordset(%(rows)s) AS r(channel text, account text, assistant text, base_url text, token_env text,
  app_secret_env text, verify_token_env text)
ON CONFLICT (organization_id, channel, account) DO UPDATE SET assistant = excluded.assistant,
  base_url = excluded.base_url, token_env = excluded.token_env, app_secret_env = excluded.app_secret_env,
  verify_token_env = excluded.verify_token_env

-- name: drop_account
-- The account and its route go together; a conversation that needs the account makes this fail.
WITH route AS (
  DELETE FROM channel_routes r
  WHERE r.organization_id = %(slug)s AND r.channel = %(channel)s AND r.account = %(account)s
)
DELETE FROM channel_accounts c
WHERE c.organization_id = %(slug)s AND c.channel = %(channel)s AND c.account = %(account)s
RETURNING c.account

-- name: drop_assistant
-- Conversations name their assistant without a foreign key, so they are asked here.
DELETE FROM assistants a
WHERE a.organization_id = %(slug)s AND a.slug = %(assistant)s
  AND NOT EXISTS (SELECT FROM conversations c WHERE c.organization_id = %(slug)s AND c.assistant = %(assistant)s)
RETURNING a.slug

-- name: drop_department
DELETE FROM departments d WHERE d.organization_id = %(slug)s AND d.name_key = %(name_key)s
RETURNING d.name
