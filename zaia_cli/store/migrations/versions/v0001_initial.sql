-- The first schema. Frozen: later changes are later migrations. tests/store/test_schema.py compares it with store/schema.py.

CREATE TABLE organizations (
  id TEXT NOT NULL,
  name TEXT NOT NULL,
  timezone TEXT NOT NULL,
  settings JSONB DEFAULT '{}'::jsonb NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  CONSTRAINT pk_organizations PRIMARY KEY (id),
  CONSTRAINT ck_organizations_slug CHECK (id ~ '^[a-z0-9][a-z0-9-]{0,62}$')
);

CREATE TABLE workers (
  id TEXT NOT NULL,
  started_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  seen_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  in_flight INTEGER DEFAULT 0 NOT NULL,
  draining BOOLEAN DEFAULT false NOT NULL,
  CONSTRAINT pk_workers PRIMARY KEY (id)
);

CREATE TABLE alerts (
  organization_id TEXT NOT NULL,
  id UUID NOT NULL,
  kind TEXT NOT NULL,
  dedupe_key TEXT NOT NULL,
  message TEXT NOT NULL,
  recipient TEXT DEFAULT '' NOT NULL,
  data JSONB DEFAULT '{}'::jsonb NOT NULL,
  state TEXT DEFAULT 'pending' NOT NULL,
  attempts INTEGER DEFAULT 0 NOT NULL,
  occurrences INTEGER DEFAULT 1 NOT NULL,
  due_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  sent_at TIMESTAMP WITH TIME ZONE,
  error TEXT,
  CONSTRAINT pk_alerts PRIMARY KEY (organization_id, id),
  CONSTRAINT ck_alerts_state CHECK (state IN ('pending', 'sent', 'failed')),
  CONSTRAINT fk_alerts_organization FOREIGN KEY(organization_id) REFERENCES organizations (id)
);

CREATE UNIQUE INDEX uq_alerts_unsent ON alerts (organization_id, kind, dedupe_key) WHERE state = 'pending';

CREATE TABLE assistants (
  organization_id TEXT NOT NULL,
  slug TEXT NOT NULL,
  prompt TEXT NOT NULL,
  prompt_version TEXT NOT NULL,
  model TEXT NOT NULL,
  fallback_models JSONB DEFAULT '[]'::jsonb NOT NULL,
  tools JSONB DEFAULT '[]'::jsonb NOT NULL,
  budgets JSONB DEFAULT '{}'::jsonb NOT NULL,
  CONSTRAINT pk_assistants PRIMARY KEY (organization_id, slug),
  CONSTRAINT fk_assistants_organization FOREIGN KEY(organization_id) REFERENCES organizations (id)
);

CREATE TABLE channel_routes (
  channel TEXT NOT NULL,
  account TEXT NOT NULL,
  organization_id TEXT NOT NULL,
  CONSTRAINT pk_channel_routes PRIMARY KEY (channel, account),
  CONSTRAINT fk_channel_routes_organization FOREIGN KEY(organization_id) REFERENCES organizations (id)
);

CREATE TABLE contacts (
  organization_id TEXT NOT NULL,
  id UUID NOT NULL,
  name TEXT,
  address TEXT NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  CONSTRAINT pk_contacts PRIMARY KEY (organization_id, id),
  CONSTRAINT fk_contacts_organization FOREIGN KEY(organization_id) REFERENCES organizations (id)
);

CREATE TABLE departments (
  organization_id TEXT NOT NULL,
  id UUID NOT NULL,
  name TEXT NOT NULL,
  name_key TEXT NOT NULL,
  assignee TEXT DEFAULT '' NOT NULL,
  CONSTRAINT pk_departments PRIMARY KEY (organization_id, id),
  CONSTRAINT uq_departments_organization_id_name_key UNIQUE (organization_id, name_key),
  CONSTRAINT fk_departments_organization FOREIGN KEY(organization_id) REFERENCES organizations (id)
);

CREATE TABLE events (
  organization_id TEXT NOT NULL,
  id BIGINT GENERATED ALWAYS AS IDENTITY,
  conversation_id UUID,
  item_id UUID,
  entity TEXT NOT NULL,
  entity_id TEXT NOT NULL,
  from_state TEXT,
  to_state TEXT,
  actor TEXT NOT NULL,
  by TEXT NOT NULL,
  why TEXT DEFAULT '' NOT NULL,
  trace_id TEXT,
  at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  CONSTRAINT pk_events PRIMARY KEY (organization_id, id),
  CONSTRAINT ck_events_actor CHECK (actor IN ('worker', 'scheduler', 'channel', 'person')),
  CONSTRAINT fk_events_organization FOREIGN KEY(organization_id) REFERENCES organizations (id)
);

CREATE INDEX ix_events_conversation ON events (organization_id, conversation_id, id);

CREATE INDEX ix_events_item ON events (organization_id, item_id);

CREATE TABLE gates (
  organization_id TEXT NOT NULL,
  name TEXT NOT NULL,
  reason TEXT NOT NULL,
  closed_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  closed_until TIMESTAMP WITH TIME ZONE,
  CONSTRAINT pk_gates PRIMARY KEY (organization_id, name),
  CONSTRAINT fk_gates_organization FOREIGN KEY(organization_id) REFERENCES organizations (id)
);

CREATE TABLE pending_changes (
  organization_id TEXT NOT NULL,
  channel TEXT NOT NULL,
  account TEXT NOT NULL,
  original_id TEXT NOT NULL,
  change TEXT NOT NULL,
  provider_id TEXT NOT NULL,
  kind TEXT DEFAULT 'text' NOT NULL,
  text TEXT,
  sent_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  raw JSONB,
  CONSTRAINT pk_pending_changes PRIMARY KEY (organization_id, channel, account, original_id, provider_id),
  CONSTRAINT ck_pending_changes_change CHECK (change IN ('edit', 'revoke')),
  CONSTRAINT fk_pending_changes_organization FOREIGN KEY(organization_id) REFERENCES organizations (id)
);

CREATE TABLE receipts (
  organization_id TEXT NOT NULL,
  channel TEXT NOT NULL,
  account TEXT NOT NULL,
  kind TEXT NOT NULL,
  provider_id TEXT NOT NULL,
  repeats INTEGER DEFAULT 0 NOT NULL,
  received_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  repeated_at TIMESTAMP WITH TIME ZONE,
  CONSTRAINT pk_receipts PRIMARY KEY (organization_id, channel, account, kind, provider_id),
  CONSTRAINT fk_receipts_organization FOREIGN KEY(organization_id) REFERENCES organizations (id)
);

CREATE TABLE rejected_inputs (
  id BIGINT GENERATED ALWAYS AS IDENTITY,
  organization_id TEXT,
  channel TEXT NOT NULL,
  account TEXT,
  path TEXT NOT NULL,
  reason TEXT NOT NULL,
  raw JSONB,
  at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  CONSTRAINT pk_rejected_inputs PRIMARY KEY (id),
  CONSTRAINT fk_rejected_inputs_organization FOREIGN KEY(organization_id) REFERENCES organizations (id)
);

CREATE TABLE statuses (
  organization_id TEXT NOT NULL,
  channel TEXT NOT NULL,
  account TEXT NOT NULL,
  provider_message_id TEXT NOT NULL,
  status TEXT NOT NULL,
  at TIMESTAMP WITH TIME ZONE NOT NULL,
  opaque_id TEXT,
  error JSONB,
  received_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  applied_at TIMESTAMP WITH TIME ZONE,
  CONSTRAINT pk_statuses PRIMARY KEY (organization_id, channel, account, provider_message_id, status, at),
  CONSTRAINT ck_statuses_status CHECK (status IN ('sent', 'delivered', 'read', 'failed')),
  CONSTRAINT fk_statuses_organization FOREIGN KEY(organization_id) REFERENCES organizations (id)
);

CREATE INDEX ix_statuses_orphans ON statuses (organization_id, provider_message_id) WHERE applied_at IS NULL;

CREATE TABLE channel_accounts (
  organization_id TEXT NOT NULL,
  channel TEXT NOT NULL,
  account TEXT NOT NULL,
  assistant TEXT NOT NULL,
  base_url TEXT DEFAULT '' NOT NULL,
  token_env TEXT DEFAULT '' NOT NULL,
  app_secret_env TEXT DEFAULT '' NOT NULL,
  verify_token_env TEXT DEFAULT '' NOT NULL,
  last_event_at TIMESTAMP WITH TIME ZONE,
  CONSTRAINT pk_channel_accounts PRIMARY KEY (organization_id, channel, account),
  CONSTRAINT fk_channel_accounts_organization_id_assistant FOREIGN KEY(organization_id, assistant) REFERENCES assistants (organization_id, slug),
  CONSTRAINT ck_channel_accounts_channel CHECK (channel IN ('whatsapp', 'instagram', 'http', 'console')),
  CONSTRAINT fk_channel_accounts_organization FOREIGN KEY(organization_id) REFERENCES organizations (id)
);

CREATE TABLE contact_aliases (
  organization_id TEXT NOT NULL,
  alias TEXT NOT NULL,
  contact_id UUID NOT NULL,
  CONSTRAINT pk_contact_aliases PRIMARY KEY (organization_id, alias),
  CONSTRAINT fk_contact_aliases_organization_id_contact_id FOREIGN KEY(organization_id, contact_id) REFERENCES contacts (organization_id, id) DEFERRABLE INITIALLY DEFERRED,
  CONSTRAINT fk_contact_aliases_organization FOREIGN KEY(organization_id) REFERENCES organizations (id)
);

CREATE TABLE conversations (
  organization_id TEXT NOT NULL,
  id UUID NOT NULL,
  contact_id UUID NOT NULL,
  channel TEXT NOT NULL,
  account TEXT NOT NULL,
  thread TEXT DEFAULT '' NOT NULL,
  address TEXT NOT NULL,
  state TEXT DEFAULT 'open' NOT NULL,
  assistant TEXT NOT NULL,
  last_customer_at TIMESTAMP WITH TIME ZONE,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  CONSTRAINT pk_conversations PRIMARY KEY (organization_id, id),
  CONSTRAINT fk_conversations_organization_id_contact_id FOREIGN KEY(organization_id, contact_id) REFERENCES contacts (organization_id, id),
  CONSTRAINT fk_conversations_organization_id_channel_account FOREIGN KEY(organization_id, channel, account) REFERENCES channel_accounts (organization_id, channel, account),
  CONSTRAINT fk_conversations_organization_id_assistant FOREIGN KEY(organization_id, assistant) REFERENCES assistants (organization_id, slug),
  CONSTRAINT uq_conversations_organization_id_contact_id_channel_acc_fea7 UNIQUE (organization_id, contact_id, channel, account, thread),
  CONSTRAINT ck_conversations_state CHECK (state IN ('open', 'resolved')),
  CONSTRAINT fk_conversations_organization FOREIGN KEY(organization_id) REFERENCES organizations (id)
);

CREATE TABLE held_echoes (
  organization_id TEXT NOT NULL,
  channel TEXT NOT NULL,
  account TEXT NOT NULL,
  provider_id TEXT NOT NULL,
  conversation_id UUID NOT NULL,
  text TEXT NOT NULL,
  sent_at TIMESTAMP WITH TIME ZONE NOT NULL,
  raw JSONB,
  CONSTRAINT pk_held_echoes PRIMARY KEY (organization_id, channel, account, provider_id),
  CONSTRAINT fk_held_echoes_organization_id_conversation_id FOREIGN KEY(organization_id, conversation_id) REFERENCES conversations (organization_id, id),
  CONSTRAINT fk_held_echoes_organization FOREIGN KEY(organization_id) REFERENCES organizations (id)
);

CREATE TABLE hot (
  organization_id TEXT NOT NULL,
  conversation_id UUID NOT NULL,
  owner TEXT DEFAULT 'agent' NOT NULL,
  owner_name TEXT DEFAULT '' NOT NULL,
  seq INTEGER DEFAULT 0 NOT NULL,
  last_in INTEGER DEFAULT 0 NOT NULL,
  done_until INTEGER DEFAULT 0 NOT NULL,
  due_at TIMESTAMP WITH TIME ZONE,
  band SMALLINT DEFAULT 1 NOT NULL,
  rank BIGINT DEFAULT 0 NOT NULL,
  lease_holder TEXT,
  lease_until TIMESTAMP WITH TIME ZONE,
  token UUID,
  revised BOOLEAN DEFAULT false NOT NULL,
  CONSTRAINT pk_hot PRIMARY KEY (organization_id, conversation_id),
  CONSTRAINT fk_hot_organization_id_conversation_id FOREIGN KEY(organization_id, conversation_id) REFERENCES conversations (organization_id, id),
  CONSTRAINT ck_hot_owner CHECK (owner IN ('agent', 'human')),
  CONSTRAINT ck_hot_lease_whole CHECK ((token IS NULL) = (lease_until IS NULL)),
  CONSTRAINT ck_hot_counters CHECK (done_until <= seq AND last_in <= seq),
  CONSTRAINT ck_hot_human_not_due CHECK (owner = 'agent' OR due_at IS NULL),
  CONSTRAINT fk_hot_organization FOREIGN KEY(organization_id) REFERENCES organizations (id)
);

CREATE INDEX ix_hot_due ON hot (band, rank) WHERE due_at IS NOT NULL;

CREATE TABLE work_items (
  organization_id TEXT NOT NULL,
  id UUID NOT NULL,
  conversation_id UUID NOT NULL,
  reference TEXT NOT NULL,
  class TEXT NOT NULL,
  class_rule TEXT DEFAULT '' NOT NULL,
  state TEXT NOT NULL,
  origin TEXT NOT NULL,
  requester UUID NOT NULL,
  request_key TEXT,
  source_message TEXT,
  first_seq INTEGER NOT NULL,
  last_seq INTEGER NOT NULL,
  read_until INTEGER,
  attempts SMALLINT DEFAULT 0 NOT NULL,
  yields SMALLINT DEFAULT 0 NOT NULL,
  due_at TIMESTAMP WITH TIME ZONE,
  opened_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  deadline_at TIMESTAMP WITH TIME ZONE,
  aged_at TIMESTAMP WITH TIME ZONE,
  overdue_at TIMESTAMP WITH TIME ZONE,
  ack_at TIMESTAMP WITH TIME ZONE,
  started_at TIMESTAMP WITH TIME ZONE,
  completed_at TIMESTAMP WITH TIME ZONE,
  result JSONB,
  error JSONB,
  trace_id TEXT NOT NULL,
  updated_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  CONSTRAINT pk_work_items PRIMARY KEY (organization_id, id),
  CONSTRAINT fk_work_items_organization_id_conversation_id FOREIGN KEY(organization_id, conversation_id) REFERENCES conversations (organization_id, id),
  CONSTRAINT fk_work_items_organization_id_requester FOREIGN KEY(organization_id, requester) REFERENCES contacts (organization_id, id),
  CONSTRAINT uq_work_items_organization_id_reference UNIQUE (organization_id, reference),
  CONSTRAINT ck_work_items_state CHECK (state IN ('pending', 'processing', 'completed', 'failed', 'needs_human', 'waiting_approval', 'cancelled')),
  CONSTRAINT ck_work_items_class CHECK (class IN ('urgent', 'standard', 'background')),
  CONSTRAINT ck_work_items_completed_has_result CHECK (state <> 'completed' OR result IS NOT NULL),
  CONSTRAINT ck_work_items_failed_has_error CHECK (state NOT IN ('failed', 'needs_human') OR error IS NOT NULL),
  CONSTRAINT fk_work_items_organization FOREIGN KEY(organization_id) REFERENCES organizations (id)
);

CREATE INDEX ix_work_items_conversation ON work_items (organization_id, conversation_id);

CREATE INDEX ix_work_items_request ON work_items (organization_id, request_key) WHERE request_key IS NOT NULL;

CREATE INDEX ix_work_items_state ON work_items (state, opened_at);

CREATE UNIQUE INDEX uq_work_items_held ON work_items (organization_id, conversation_id) WHERE state IN ('processing', 'waiting_approval');

CREATE UNIQUE INDEX uq_work_items_pending ON work_items (organization_id, conversation_id) WHERE state = 'pending';

CREATE TABLE attempts (
  organization_id TEXT NOT NULL,
  id UUID NOT NULL,
  item_id UUID NOT NULL,
  n INTEGER NOT NULL,
  worker TEXT NOT NULL,
  state TEXT DEFAULT 'running' NOT NULL,
  error JSONB,
  started_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  ended_at TIMESTAMP WITH TIME ZONE,
  CONSTRAINT pk_attempts PRIMARY KEY (organization_id, id),
  CONSTRAINT fk_attempts_organization_id_item_id FOREIGN KEY(organization_id, item_id) REFERENCES work_items (organization_id, id),
  CONSTRAINT ck_attempts_state CHECK (state IN ('running', 'succeeded', 'failed', 'yielded', 'cancelled')),
  CONSTRAINT uq_attempts_organization_id_item_id_n UNIQUE (organization_id, item_id, n),
  CONSTRAINT fk_attempts_organization FOREIGN KEY(organization_id) REFERENCES organizations (id)
);

CREATE UNIQUE INDEX uq_attempts_running ON attempts (organization_id, item_id) WHERE state = 'running';

CREATE TABLE handoffs (
  organization_id TEXT NOT NULL,
  id UUID NOT NULL,
  conversation_id UUID NOT NULL,
  item_id UUID,
  department_id UUID,
  assignee TEXT NOT NULL,
  reason TEXT NOT NULL,
  note TEXT DEFAULT '' NOT NULL,
  state TEXT DEFAULT 'open' NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  resolved_at TIMESTAMP WITH TIME ZONE,
  resolved_by TEXT,
  CONSTRAINT pk_handoffs PRIMARY KEY (organization_id, id),
  CONSTRAINT fk_handoffs_organization_id_conversation_id FOREIGN KEY(organization_id, conversation_id) REFERENCES conversations (organization_id, id),
  CONSTRAINT fk_handoffs_organization_id_item_id FOREIGN KEY(organization_id, item_id) REFERENCES work_items (organization_id, id),
  CONSTRAINT fk_handoffs_organization_id_department_id FOREIGN KEY(organization_id, department_id) REFERENCES departments (organization_id, id),
  CONSTRAINT ck_handoffs_state CHECK (state IN ('open', 'resolved')),
  CONSTRAINT fk_handoffs_organization FOREIGN KEY(organization_id) REFERENCES organizations (id)
);

CREATE UNIQUE INDEX uq_handoffs_open ON handoffs (organization_id, conversation_id) WHERE state = 'open';

CREATE TABLE item_aliases (
  organization_id TEXT NOT NULL,
  reference TEXT NOT NULL,
  item_id UUID NOT NULL,
  CONSTRAINT pk_item_aliases PRIMARY KEY (organization_id, reference),
  CONSTRAINT fk_item_aliases_organization_id_item_id FOREIGN KEY(organization_id, item_id) REFERENCES work_items (organization_id, id),
  CONSTRAINT fk_item_aliases_organization FOREIGN KEY(organization_id) REFERENCES organizations (id)
);

CREATE TABLE messages (
  organization_id TEXT NOT NULL,
  id UUID NOT NULL,
  conversation_id UUID NOT NULL,
  position BIGINT GENERATED ALWAYS AS IDENTITY,
  seq INTEGER,
  after_seq INTEGER DEFAULT 0 NOT NULL,
  role TEXT NOT NULL,
  kind TEXT DEFAULT 'text' NOT NULL,
  text TEXT NOT NULL,
  provider_id TEXT,
  reply_to TEXT,
  item_id UUID,
  step INTEGER,
  author TEXT DEFAULT '' NOT NULL,
  starts_turn BOOLEAN DEFAULT false NOT NULL,
  fields JSONB DEFAULT '{}'::jsonb NOT NULL,
  revisions JSONB DEFAULT '[]'::jsonb NOT NULL,
  deleted_at TIMESTAMP WITH TIME ZONE,
  raw JSONB,
  sent_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  CONSTRAINT pk_messages PRIMARY KEY (organization_id, id),
  CONSTRAINT fk_messages_organization_id_conversation_id FOREIGN KEY(organization_id, conversation_id) REFERENCES conversations (organization_id, id),
  CONSTRAINT fk_messages_organization_id_item_id FOREIGN KEY(organization_id, item_id) REFERENCES work_items (organization_id, id),
  CONSTRAINT ck_messages_role CHECK (role IN ('customer', 'agent', 'human', 'tool_call', 'tool_result', 'note')),
  CONSTRAINT uq_messages_organization_id_conversation_id_seq UNIQUE (organization_id, conversation_id, seq),
  CONSTRAINT fk_messages_organization FOREIGN KEY(organization_id) REFERENCES organizations (id)
);

CREATE INDEX ix_messages_conversation ON messages (organization_id, conversation_id, after_seq, position);

CREATE INDEX ix_messages_provider ON messages (organization_id, provider_id) WHERE provider_id IS NOT NULL;

CREATE TABLE replies (
  organization_id TEXT NOT NULL,
  id UUID NOT NULL,
  conversation_id UUID NOT NULL,
  item_id UUID,
  kind TEXT NOT NULL,
  author TEXT NOT NULL,
  text TEXT NOT NULL,
  source_message TEXT,
  read_until INTEGER NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  CONSTRAINT pk_replies PRIMARY KEY (organization_id, id),
  CONSTRAINT fk_replies_organization_id_conversation_id FOREIGN KEY(organization_id, conversation_id) REFERENCES conversations (organization_id, id),
  CONSTRAINT fk_replies_organization_id_item_id FOREIGN KEY(organization_id, item_id) REFERENCES work_items (organization_id, id),
  CONSTRAINT uq_replies_organization_id_item_id_kind UNIQUE (organization_id, item_id, kind),
  CONSTRAINT ck_replies_kind CHECK (kind IN ('answer', 'handoff', 'acknowledgement', 'duplicate', 'notice', 'human')),
  CONSTRAINT fk_replies_organization FOREIGN KEY(organization_id) REFERENCES organizations (id)
);

CREATE INDEX ix_replies_conversation ON replies (organization_id, conversation_id);

CREATE TABLE model_calls (
  organization_id TEXT NOT NULL,
  item_id UUID NOT NULL,
  step INTEGER NOT NULL,
  try INTEGER NOT NULL,
  conversation_id UUID NOT NULL,
  attempt_id UUID NOT NULL,
  assistant TEXT NOT NULL,
  prompt TEXT NOT NULL,
  prompt_version TEXT NOT NULL,
  prompt_sha256 TEXT NOT NULL,
  model TEXT NOT NULL,
  provider_model TEXT,
  purpose TEXT NOT NULL,
  outcome TEXT NOT NULL,
  error TEXT,
  input_tokens INTEGER,
  cache_read_tokens INTEGER,
  cache_write_tokens INTEGER,
  cache_write_1h_tokens INTEGER,
  output_tokens INTEGER,
  reasoning_tokens INTEGER,
  usage_estimated BOOLEAN DEFAULT false NOT NULL,
  latency_ms INTEGER NOT NULL,
  cost_usd NUMERIC,
  price JSONB,
  at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  CONSTRAINT pk_model_calls PRIMARY KEY (organization_id, item_id, attempt_id, step, try),
  CONSTRAINT fk_model_calls_organization_id_item_id FOREIGN KEY(organization_id, item_id) REFERENCES work_items (organization_id, id),
  CONSTRAINT fk_model_calls_organization_id_attempt_id FOREIGN KEY(organization_id, attempt_id) REFERENCES attempts (organization_id, id),
  CONSTRAINT fk_model_calls_organization_id_conversation_id FOREIGN KEY(organization_id, conversation_id) REFERENCES conversations (organization_id, id),
  CONSTRAINT fk_model_calls_organization FOREIGN KEY(organization_id) REFERENCES organizations (id)
);

CREATE INDEX ix_model_calls_at ON model_calls (organization_id, at);

CREATE TABLE parts (
  organization_id TEXT NOT NULL,
  reply_id UUID NOT NULL,
  n INTEGER NOT NULL,
  conversation_id UUID NOT NULL,
  position BIGINT GENERATED ALWAYS AS IDENTITY,
  text TEXT NOT NULL,
  state TEXT DEFAULT 'pending' NOT NULL,
  attempts INTEGER DEFAULT 0 NOT NULL,
  waits INTEGER DEFAULT 0 NOT NULL,
  provider_message_id TEXT,
  error JSONB,
  due_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  sending_at TIMESTAMP WITH TIME ZONE,
  accepted_at TIMESTAMP WITH TIME ZONE,
  sent_at TIMESTAMP WITH TIME ZONE,
  delivered_at TIMESTAMP WITH TIME ZONE,
  read_at TIMESTAMP WITH TIME ZONE,
  failed_at TIMESTAMP WITH TIME ZONE,
  unknown_at TIMESTAMP WITH TIME ZONE,
  reconcile_at TIMESTAMP WITH TIME ZONE,
  updated_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  CONSTRAINT pk_parts PRIMARY KEY (organization_id, reply_id, n),
  CONSTRAINT fk_parts_organization_id_reply_id FOREIGN KEY(organization_id, reply_id) REFERENCES replies (organization_id, id),
  CONSTRAINT fk_parts_organization_id_conversation_id FOREIGN KEY(organization_id, conversation_id) REFERENCES conversations (organization_id, id),
  CONSTRAINT ck_parts_state CHECK (state IN ('pending', 'sending', 'accepted', 'sent', 'delivered', 'read', 'failed', 'unknown', 'cancelled')),
  CONSTRAINT fk_parts_organization FOREIGN KEY(organization_id) REFERENCES organizations (id)
);

CREATE INDEX ix_parts_due ON parts (due_at) WHERE state = 'pending';

CREATE INDEX ix_parts_open ON parts (organization_id, conversation_id, position) WHERE state IN ('pending', 'sending', 'unknown');

CREATE INDEX ix_parts_provider ON parts (organization_id, provider_message_id) WHERE provider_message_id IS NOT NULL;

CREATE TABLE steps (
  organization_id TEXT NOT NULL,
  item_id UUID NOT NULL,
  n INTEGER NOT NULL,
  attempt_id UUID NOT NULL,
  model TEXT NOT NULL,
  answer JSONB DEFAULT '{}'::jsonb NOT NULL,
  read_until INTEGER NOT NULL,
  tokens INTEGER DEFAULT 0 NOT NULL,
  latency_ms INTEGER DEFAULT 0 NOT NULL,
  superseded BOOLEAN DEFAULT false NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  CONSTRAINT pk_steps PRIMARY KEY (organization_id, item_id, n),
  CONSTRAINT fk_steps_organization_id_item_id FOREIGN KEY(organization_id, item_id) REFERENCES work_items (organization_id, id),
  CONSTRAINT fk_steps_organization_id_attempt_id FOREIGN KEY(organization_id, attempt_id) REFERENCES attempts (organization_id, id),
  CONSTRAINT fk_steps_organization FOREIGN KEY(organization_id) REFERENCES organizations (id)
);

CREATE TABLE deliveries (
  organization_id TEXT NOT NULL,
  reply_id UUID NOT NULL,
  part INTEGER NOT NULL,
  n INTEGER NOT NULL,
  opaque_id TEXT NOT NULL,
  worker TEXT NOT NULL,
  outcome TEXT,
  provider_message_id TEXT,
  error JSONB,
  started_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  ended_at TIMESTAMP WITH TIME ZONE,
  CONSTRAINT pk_deliveries PRIMARY KEY (organization_id, reply_id, part, n),
  CONSTRAINT fk_deliveries_organization_id_reply_id_part FOREIGN KEY(organization_id, reply_id, part) REFERENCES parts (organization_id, reply_id, n),
  CONSTRAINT uq_deliveries_organization_id_opaque_id UNIQUE (organization_id, opaque_id),
  CONSTRAINT fk_deliveries_organization FOREIGN KEY(organization_id) REFERENCES organizations (id)
);

CREATE TABLE tool_executions (
  organization_id TEXT NOT NULL,
  item_id UUID NOT NULL,
  step INTEGER NOT NULL,
  ordinal INTEGER NOT NULL,
  call_id TEXT NOT NULL,
  name TEXT NOT NULL,
  arguments JSONB,
  state TEXT NOT NULL,
  side_effect BOOLEAN DEFAULT false NOT NULL,
  result TEXT,
  started_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  ended_at TIMESTAMP WITH TIME ZONE,
  CONSTRAINT pk_tool_executions PRIMARY KEY (organization_id, item_id, step, ordinal),
  CONSTRAINT fk_tool_executions_organization_id_item_id_step FOREIGN KEY(organization_id, item_id, step) REFERENCES steps (organization_id, item_id, n),
  CONSTRAINT ck_tool_executions_state CHECK (state IN ('started', 'succeeded', 'failed', 'waiting_approval')),
  CONSTRAINT fk_tool_executions_organization FOREIGN KEY(organization_id) REFERENCES organizations (id)
);

CREATE TABLE approvals (
  organization_id TEXT NOT NULL,
  id UUID NOT NULL,
  conversation_id UUID NOT NULL,
  item_id UUID NOT NULL,
  step INTEGER NOT NULL,
  ordinal INTEGER NOT NULL,
  tool TEXT NOT NULL,
  arguments JSONB DEFAULT '{}'::jsonb NOT NULL,
  state TEXT DEFAULT 'waiting' NOT NULL,
  assignee TEXT NOT NULL,
  decided_by TEXT,
  why TEXT DEFAULT '' NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
  decided_at TIMESTAMP WITH TIME ZONE,
  CONSTRAINT pk_approvals PRIMARY KEY (organization_id, id),
  CONSTRAINT fk_approvals_organization_id_conversation_id FOREIGN KEY(organization_id, conversation_id) REFERENCES conversations (organization_id, id),
  CONSTRAINT fk_approvals_organization_id_item_id_step_ordinal FOREIGN KEY(organization_id, item_id, step, ordinal) REFERENCES tool_executions (organization_id, item_id, step, ordinal),
  CONSTRAINT ck_approvals_state CHECK (state IN ('waiting', 'approved', 'rejected')),
  CONSTRAINT uq_approvals_organization_id_item_id_step_ordinal UNIQUE (organization_id, item_id, step, ordinal),
  CONSTRAINT fk_approvals_organization FOREIGN KEY(organization_id) REFERENCES organizations (id)
);
