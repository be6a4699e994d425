-- The database as a whole: what an operator asks about it and how it is emptied.

-- name: server
SELECT current_setting('server_version') AS version, current_database() AS name,
  (SELECT count(*)::int FROM pg_catalog.pg_tables WHERE schemaname = 'public') AS tables

-- name: sizes
-- What a reset would delete. Counted, not estimated: a person decides by these numbers.
SELECT (SELECT count(*)::int FROM organizations) AS organizations,
  (SELECT count(*)::int FROM conversations) AS conversations, (SELECT count(*)::int FROM messages) AS messages

-- name: limit_lock_wait
-- A worker that is in the middle of something must not make a reset hang.
SET LOCAL lock_timeout = '10s'

-- name: drop_schema
DROP SCHEMA public CASCADE

-- name: create_schema
CREATE SCHEMA public

-- name: open_schema
-- What PostgreSQL itself grants on the schema of a new database.
GRANT USAGE ON SCHEMA public TO PUBLIC
