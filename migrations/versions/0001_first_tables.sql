-- The first tables. Frozen: later changes are later migrations.

CREATE TABLE projects (
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT projects_pkey PRIMARY KEY (id),
    CONSTRAINT projects_name_key UNIQUE (name)
);

CREATE TABLE api_keys (
    id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    name TEXT NOT NULL,
    sha256 BYTEA NOT NULL,
    hint TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    revoked_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT api_keys_pkey PRIMARY KEY (id),
    CONSTRAINT api_keys_project_id_fkey FOREIGN KEY(project_id) REFERENCES projects (id),
    CONSTRAINT api_keys_sha256_key UNIQUE (sha256)
);

CREATE TABLE files (
    id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    filename TEXT NOT NULL,
    purpose TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    sha256 TEXT NOT NULL,
    examples INTEGER NOT NULL,
    characters BIGINT NOT NULL,
    mean_tokens INTEGER NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    deleted_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT files_pkey PRIMARY KEY (id),
    CONSTRAINT files_project_id_fkey FOREIGN KEY(project_id) REFERENCES projects (id)
);

CREATE INDEX files_listing ON files (project_id, id);

CREATE TABLE jobs (
    id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    api_key_id TEXT NOT NULL,
    idempotency_key TEXT,
    body_sha256 TEXT NOT NULL,
    request JSONB NOT NULL,
    model TEXT NOT NULL,
    training_file TEXT NOT NULL,
    validation_file TEXT,
    plan JSONB NOT NULL,
    run_spec_sha256 TEXT,
    inputs JSONB DEFAULT '[]' NOT NULL,
    total_steps INTEGER NOT NULL,
    state TEXT NOT NULL,
    since TIMESTAMP WITH TIME ZONE NOT NULL,
    reason TEXT DEFAULT '' NOT NULL,
    error JSONB,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE,
    finished_at TIMESTAMP WITH TIME ZONE,
    cancel_requested_at TIMESTAMP WITH TIME ZONE,
    pause_requested_at TIMESTAMP WITH TIME ZONE,
    trainer_errors INTEGER DEFAULT '0' NOT NULL,
    result JSONB,
    due_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    lease_token TEXT,
    lease_expires_at TIMESTAMP WITH TIME ZONE,
    hints BIGINT DEFAULT '0' NOT NULL,
    CONSTRAINT jobs_pkey PRIMARY KEY (id),
    CONSTRAINT jobs_state_check CHECK (state in ('validating', 'queued', 'running', 'recovering', 'paused', 'succeeded', 'failed', 'cancelled')),
    CONSTRAINT jobs_finished_is_dated_check CHECK ((state in ('succeeded', 'failed', 'cancelled')) = (finished_at is not null)),
    CONSTRAINT jobs_success_has_a_model_check CHECK ((state = 'succeeded') <= (result is not null)),
    CONSTRAINT jobs_failure_has_a_reason_check CHECK ((state = 'failed') <= (error is not null)),
    CONSTRAINT jobs_project_id_fkey FOREIGN KEY(project_id) REFERENCES projects (id),
    CONSTRAINT jobs_api_key_id_fkey FOREIGN KEY(api_key_id) REFERENCES api_keys (id),
    CONSTRAINT jobs_training_file_fkey FOREIGN KEY(training_file) REFERENCES files (id),
    CONSTRAINT jobs_validation_file_fkey FOREIGN KEY(validation_file) REFERENCES files (id)
);

CREATE INDEX jobs_due ON jobs (due_at) WHERE state not in ('succeeded', 'failed', 'cancelled');

CREATE INDEX jobs_listing ON jobs (project_id, id);

CREATE UNIQUE INDEX jobs_one_per_idempotency_key ON jobs (project_id, idempotency_key) WHERE idempotency_key is not null;

CREATE TABLE attempts (
    id TEXT NOT NULL,
    job_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    region TEXT NOT NULL,
    vm_size TEXT NOT NULL,
    capacity_type TEXT NOT NULL,
    hourly NUMERIC(14, 6) NOT NULL,
    on_demand_hourly NUMERIC(14, 6) NOT NULL,
    instance_count INTEGER NOT NULL,
    processes_per_node INTEGER NOT NULL,
    state TEXT NOT NULL,
    since TIMESTAMP WITH TIME ZONE NOT NULL,
    outcome TEXT,
    reason TEXT DEFAULT '' NOT NULL,
    refusals INTEGER DEFAULT '0' NOT NULL,
    duds INTEGER DEFAULT '0' NOT NULL,
    ran_at TIMESTAMP WITH TIME ZONE,
    vm_ids JSONB DEFAULT '[]' NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    ended_at TIMESTAMP WITH TIME ZONE,
    due_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    lease_token TEXT,
    lease_expires_at TIMESTAMP WITH TIME ZONE,
    hints BIGINT DEFAULT '0' NOT NULL,
    CONSTRAINT attempts_pkey PRIMARY KEY (id),
    CONSTRAINT attempts_job_id_number_key UNIQUE (job_id, number),
    CONSTRAINT attempts_state_check CHECK (state in ('pending', 'provisioning', 'starting', 'running', 'terminating', 'ended')),
    CONSTRAINT attempts_outcome_check CHECK (outcome in ('succeeded', 'evicted', 'no_capacity', 'unresponsive', 'trainer_error', 'cancelled', 'paused', 'over_budget')),
    CONSTRAINT attempts_capacity_type_check CHECK (capacity_type in ('spot', 'on_demand')),
    CONSTRAINT attempts_outcome_known_check CHECK ((state in ('terminating', 'ended')) = (outcome is not null)),
    CONSTRAINT attempts_end_is_dated_check CHECK ((state = 'ended') = (ended_at is not null)),
    CONSTRAINT attempts_job_id_fkey FOREIGN KEY(job_id) REFERENCES jobs (id)
);

CREATE INDEX attempts_due ON attempts (due_at) WHERE state <> 'ended';

CREATE UNIQUE INDEX attempts_one_live_per_job ON attempts (job_id) WHERE state not in ('terminating', 'ended');

CREATE TABLE checkpoints (
    id TEXT NOT NULL,
    job_id TEXT NOT NULL,
    path TEXT NOT NULL,
    step INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    kind TEXT NOT NULL,
    size BIGINT NOT NULL,
    world_size INTEGER NOT NULL,
    committed_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT checkpoints_pkey PRIMARY KEY (id),
    CONSTRAINT checkpoints_job_id_path_key UNIQUE (job_id, path),
    CONSTRAINT checkpoints_job_id_fkey FOREIGN KEY(job_id) REFERENCES jobs (id)
);

CREATE INDEX checkpoints_of_job ON checkpoints (job_id, id);

CREATE TABLE metrics (
    job_id TEXT NOT NULL,
    step INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    loss FLOAT NOT NULL,
    learning_rate FLOAT NOT NULL,
    grad_norm FLOAT NOT NULL,
    accuracy FLOAT NOT NULL,
    tokens BIGINT NOT NULL,
    seconds FLOAT NOT NULL,
    valid_loss FLOAT,
    CONSTRAINT metrics_pkey PRIMARY KEY (job_id, step),
    CONSTRAINT metrics_job_id_fkey FOREIGN KEY(job_id) REFERENCES jobs (id)
);

CREATE TABLE events (
    seq BIGSERIAL NOT NULL,
    id TEXT NOT NULL,
    job_id TEXT NOT NULL,
    attempt_id TEXT,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    level TEXT NOT NULL,
    code TEXT NOT NULL,
    message TEXT NOT NULL,
    data JSONB,
    CONSTRAINT events_pkey PRIMARY KEY (seq),
    CONSTRAINT events_level_check CHECK (level in ('info', 'warn', 'error')),
    CONSTRAINT events_id_key UNIQUE (id),
    CONSTRAINT events_job_id_fkey FOREIGN KEY(job_id) REFERENCES jobs (id),
    CONSTRAINT events_attempt_id_fkey FOREIGN KEY(attempt_id) REFERENCES attempts (id)
);

CREATE INDEX events_of_job ON events (job_id, seq);

CREATE TABLE generations (
    job_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    attempt_id TEXT NOT NULL,
    content JSONB NOT NULL,
    opened_at TIMESTAMP WITH TIME ZONE NOT NULL,
    halt_kind TEXT,
    halt_reason TEXT,
    halted_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT generations_pkey PRIMARY KEY (job_id, number),
    CONSTRAINT generations_numbers_start_at_one_check CHECK (number > 0),
    CONSTRAINT generations_job_id_fkey FOREIGN KEY(job_id) REFERENCES jobs (id),
    CONSTRAINT generations_attempt_id_fkey FOREIGN KEY(attempt_id) REFERENCES attempts (id)
);

CREATE INDEX generations_attempt_id ON generations (attempt_id);

CREATE TABLE ledger (
    id BIGSERIAL NOT NULL,
    job_id TEXT NOT NULL,
    attempt_id TEXT NOT NULL,
    vm_id TEXT NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE NOT NULL,
    ended_at TIMESTAMP WITH TIME ZONE,
    hourly NUMERIC(14, 6) NOT NULL,
    on_demand_hourly NUMERIC(14, 6) NOT NULL,
    CONSTRAINT ledger_pkey PRIMARY KEY (id),
    CONSTRAINT ledger_time_runs_forward_check CHECK (ended_at >= started_at),
    CONSTRAINT ledger_job_id_fkey FOREIGN KEY(job_id) REFERENCES jobs (id),
    CONSTRAINT ledger_attempt_id_fkey FOREIGN KEY(attempt_id) REFERENCES attempts (id)
);

CREATE INDEX ledger_job_id ON ledger (job_id);

CREATE UNIQUE INDEX ledger_one_open_row_per_machine ON ledger (attempt_id, vm_id) WHERE ended_at is null;

CREATE TABLE nodes (
    id TEXT NOT NULL,
    attempt_id TEXT NOT NULL,
    vm_id TEXT NOT NULL,
    name TEXT NOT NULL,
    address TEXT NOT NULL,
    boot_id TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    heartbeat_seq INTEGER DEFAULT '0' NOT NULL,
    phase TEXT NOT NULL,
    generation INTEGER DEFAULT '0' NOT NULL,
    step INTEGER DEFAULT '0' NOT NULL,
    free_port INTEGER DEFAULT '0' NOT NULL,
    evicting BOOLEAN DEFAULT 'false' NOT NULL,
    restarted_in INTEGER DEFAULT '0' NOT NULL,
    directive_seq INTEGER DEFAULT '0' NOT NULL,
    directive_kind TEXT DEFAULT 'carry_on' NOT NULL,
    directive_number INTEGER DEFAULT '0' NOT NULL,
    registered_at TIMESTAMP WITH TIME ZONE NOT NULL,
    heard_at TIMESTAMP WITH TIME ZONE NOT NULL,
    spans JSONB DEFAULT '[]' NOT NULL,
    error TEXT DEFAULT '' NOT NULL,
    CONSTRAINT nodes_pkey PRIMARY KEY (id),
    CONSTRAINT nodes_attempt_id_vm_id_key UNIQUE (attempt_id, vm_id),
    CONSTRAINT nodes_phase_check CHECK (phase in ('ready', 'running', 'stopped', 'failed', 'finished')),
    CONSTRAINT nodes_directive_kind_check CHECK (directive_kind in ('start', 'checkpoint_and_stop', 'stop', 'carry_on')),
    CONSTRAINT nodes_attempt_id_fkey FOREIGN KEY(attempt_id) REFERENCES attempts (id)
);
