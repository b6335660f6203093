-- The tables of service/db/schema/tables.py and its neighbours, as they were made. Frozen: later changes are later migrations.

CREATE TABLE bills (
    day DATE NOT NULL,
    attempt_id TEXT NOT NULL,
    category TEXT NOT NULL,
    quantity NUMERIC(18, 6) NOT NULL,
    amount NUMERIC(14, 6) NOT NULL,
    seen_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT bills_pkey PRIMARY KEY (day, attempt_id, category)
);

CREATE TABLE cloud_circuits (
    region TEXT NOT NULL,
    failures INTEGER DEFAULT '0' NOT NULL,
    shut_until TIMESTAMP WITH TIME ZONE,
    CONSTRAINT cloud_circuits_pkey PRIMARY KEY (region)
);

CREATE TABLE cloud_listings (
    scope TEXT NOT NULL,
    due_at TIMESTAMP WITH TIME ZONE NOT NULL,
    listed_at TIMESTAMP WITH TIME ZONE,
    sets JSONB DEFAULT '{}' NOT NULL,
    CONSTRAINT cloud_listings_pkey PRIMARY KEY (scope)
);

CREATE TABLE cloud_tokens (
    region TEXT NOT NULL,
    kind TEXT NOT NULL,
    tokens FLOAT NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT cloud_tokens_pkey PRIMARY KEY (region, kind)
);

CREATE TABLE core_quotas (
    region TEXT NOT NULL,
    due_at TIMESTAMP WITH TIME ZONE NOT NULL,
    read_at TIMESTAMP WITH TIME ZONE,
    cores INTEGER,
    others INTEGER DEFAULT '0' NOT NULL,
    CONSTRAINT core_quotas_pkey PRIMARY KEY (region)
);

CREATE TABLE market_looks (
    what TEXT NOT NULL,
    due_at TIMESTAMP WITH TIME ZONE NOT NULL,
    told_at TIMESTAMP WITH TIME ZONE,
    trouble TEXT DEFAULT '' NOT NULL,
    trouble_at TIMESTAMP WITH TIME ZONE,
    first_day DATE,
    CONSTRAINT market_looks_pkey PRIMARY KEY (what)
);

CREATE TABLE preflights (
    key TEXT NOT NULL,
    touched_at TIMESTAMP WITH TIME ZONE NOT NULL,
    rows_done BIGINT DEFAULT '0' NOT NULL,
    report JSONB,
    refusal JSONB,
    CONSTRAINT preflights_pkey PRIMARY KEY (key),
    CONSTRAINT preflights_one_outcome_check CHECK (report is null or refusal is null)
);

CREATE INDEX preflights_touched_at ON preflights (touched_at);

CREATE TABLE projects (
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    budget NUMERIC(14, 6),
    budget_since TIMESTAMP WITH TIME ZONE,
    budget_set_at TIMESTAMP WITH TIME ZONE,
    budget_told INTEGER DEFAULT '0' NOT NULL,
    CONSTRAINT projects_pkey PRIMARY KEY (id),
    CONSTRAINT projects_budget_counts_from_check CHECK ((budget is null) = (budget_since is null)),
    CONSTRAINT projects_name_key UNIQUE (name)
);

CREATE TABLE shortages (
    region TEXT NOT NULL,
    vm_size TEXT NOT NULL,
    capacity_type TEXT NOT NULL,
    engine TEXT DEFAULT 'scale_set' NOT NULL,
    since TIMESTAMP WITH TIME ZONE NOT NULL,
    ends_at TIMESTAMP WITH TIME ZONE NOT NULL,
    in_a_row INTEGER NOT NULL,
    reason TEXT NOT NULL,
    nodes INTEGER DEFAULT '1' NOT NULL,
    CONSTRAINT shortages_pkey PRIMARY KEY (region, vm_size, capacity_type, engine),
    CONSTRAINT shortages_in_a_row_check CHECK (in_a_row > 0),
    CONSTRAINT shortages_nodes_check CHECK (nodes > 0)
);

CREATE TABLE spot_bands (
    region TEXT NOT NULL,
    vm_size TEXT NOT NULL,
    since TIMESTAMP WITH TIME ZONE NOT NULL,
    seen_at TIMESTAMP WITH TIME ZONE NOT NULL,
    band TEXT NOT NULL,
    CONSTRAINT spot_bands_pkey PRIMARY KEY (region, vm_size, since),
    CONSTRAINT spot_bands_band_check CHECK (band in ('0-5', '5-10', '10-15', '15-20', '20+'))
);

CREATE TABLE spot_prices (
    region TEXT NOT NULL,
    vm_size TEXT NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    hourly NUMERIC(14, 6) NOT NULL,
    seen_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT spot_prices_pkey PRIMARY KEY (region, vm_size, at),
    CONSTRAINT spot_prices_not_negative_check CHECK (hourly >= 0)
);

CREATE TABLE spot_scores (
    region TEXT NOT NULL,
    vm_size TEXT NOT NULL,
    score TEXT NOT NULL,
    machines INTEGER NOT NULL,
    since TIMESTAMP WITH TIME ZONE NOT NULL,
    seen_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT spot_scores_pkey PRIMARY KEY (region, vm_size),
    CONSTRAINT spot_scores_score_check CHECK (score in ('High', 'Medium', 'Low')),
    CONSTRAINT spot_scores_machines_check CHECK (machines > 0)
);

CREATE TABLE turns (
    what TEXT NOT NULL,
    holder TEXT NOT NULL,
    ends_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT turns_pkey PRIMARY KEY (what)
);

CREATE TABLE api_keys (
    id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    name TEXT NOT NULL,
    sha256 BYTEA NOT NULL,
    hint TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    revoked_at TIMESTAMP WITH TIME ZONE,
    last_used_at TIMESTAMP WITH TIME ZONE,
    scope TEXT DEFAULT 'write' NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE,
    created_by TEXT,
    CONSTRAINT api_keys_pkey PRIMARY KEY (id),
    CONSTRAINT api_keys_scope_check CHECK (scope in ('read', 'write', 'operator')),
    CONSTRAINT api_keys_project_id_fkey FOREIGN KEY(project_id) REFERENCES projects (id),
    CONSTRAINT api_keys_sha256_key UNIQUE (sha256),
    CONSTRAINT api_keys_created_by_fkey FOREIGN KEY(created_by) REFERENCES api_keys (id)
);

CREATE INDEX api_keys_listing ON api_keys (project_id, id);

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
    warnings JSONB DEFAULT '[]' NOT NULL,
    warning_counts JSONB DEFAULT '{}' NOT NULL,
    longest JSONB DEFAULT '[]' NOT NULL,
    format TEXT DEFAULT 'chat' NOT NULL,
    members JSONB DEFAULT '{}' NOT NULL,
    answers INTEGER DEFAULT '0' NOT NULL,
    labels JSONB DEFAULT '[]' NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT files_pkey PRIMARY KEY (id),
    CONSTRAINT files_format_check CHECK (format in ('chat', 'preference', 'prompt', 'ranking', 'labelled_text')),
    CONSTRAINT files_project_id_fkey FOREIGN KEY(project_id) REFERENCES projects (id)
);

CREATE INDEX files_expires_at ON files (expires_at) WHERE expires_at is not null and deleted_at is null;

CREATE INDEX files_listing ON files (project_id, id);

CREATE TABLE plans (
    id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    model TEXT NOT NULL,
    request JSONB NOT NULL,
    plan JSONB NOT NULL,
    CONSTRAINT plans_pkey PRIMARY KEY (id),
    CONSTRAINT plans_expiry_check CHECK (expires_at > created_at),
    CONSTRAINT plans_project_id_fkey FOREIGN KEY(project_id) REFERENCES projects (id)
);

CREATE INDEX plans_expires_at ON plans (expires_at);

CREATE TABLE project_limits (
    project_id TEXT NOT NULL,
    live_jobs BIGINT,
    files BIGINT,
    bytes BIGINT,
    keys BIGINT,
    CONSTRAINT project_limits_pkey PRIMARY KEY (project_id),
    CONSTRAINT project_limits_not_negative_check CHECK (live_jobs >= 0 and files >= 0 and bytes >= 0 and keys >= 0),
    CONSTRAINT project_limits_project_id_fkey FOREIGN KEY(project_id) REFERENCES projects (id)
);

CREATE TABLE quotas (
    project_id TEXT NOT NULL,
    max_jobs INTEGER,
    max_gpus INTEGER,
    weight FLOAT DEFAULT '1' NOT NULL,
    CONSTRAINT quotas_pkey PRIMARY KEY (project_id),
    CONSTRAINT quotas_not_negative_check CHECK (max_jobs >= 0 and max_gpus >= 0),
    CONSTRAINT quotas_weight_check CHECK (weight > 0),
    CONSTRAINT quotas_project_id_fkey FOREIGN KEY(project_id) REFERENCES projects (id)
);

CREATE TABLE sign_in_tokens (
    sha256 BYTEA NOT NULL,
    project_id TEXT NOT NULL,
    scope TEXT NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    used_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT sign_in_tokens_pkey PRIMARY KEY (sha256),
    CONSTRAINT sign_in_tokens_scope_check CHECK (scope in ('read', 'write', 'operator')),
    CONSTRAINT sign_in_tokens_project_id_fkey FOREIGN KEY(project_id) REFERENCES projects (id)
);

CREATE TABLE uploads (
    id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    filename TEXT NOT NULL,
    purpose TEXT NOT NULL,
    expected_bytes BIGINT,
    received_bytes BIGINT NOT NULL,
    examples INTEGER NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    touched_at TIMESTAMP WITH TIME ZONE NOT NULL,
    given_up_at TIMESTAMP WITH TIME ZONE,
    mime_type TEXT,
    expires_after INTEGER,
    claim TEXT,
    refusal JSONB,
    CONSTRAINT uploads_pkey PRIMARY KEY (id),
    CONSTRAINT uploads_project_id_fkey FOREIGN KEY(project_id) REFERENCES projects (id)
);

CREATE INDEX uploads_listing ON uploads (project_id, id);

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
    version BIGINT DEFAULT '1' NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    progress JSONB DEFAULT '{}' NOT NULL,
    lost_steps INTEGER DEFAULT '0' NOT NULL,
    trained_tokens BIGINT,
    result_file TEXT,
    collected_generation INTEGER DEFAULT '0' NOT NULL,
    events_pruned BOOLEAN DEFAULT 'false' NOT NULL,
    metrics_pruned BOOLEAN DEFAULT 'false' NOT NULL,
    terms JSONB DEFAULT '{}' NOT NULL,
    over_budget_at TIMESTAMP WITH TIME ZONE,
    over_budget_because TEXT DEFAULT '' NOT NULL,
    budget_told INTEGER DEFAULT '0' NOT NULL,
    at_risk_at TIMESTAMP WITH TIME ZONE,
    moves_since TIMESTAMP WITH TIME ZONE,
    returns_since TIMESTAMP WITH TIME ZONE,
    waits_for TEXT DEFAULT '' NOT NULL,
    asks_again_at TIMESTAMP WITH TIME ZONE,
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
    CONSTRAINT jobs_validation_file_fkey FOREIGN KEY(validation_file) REFERENCES files (id),
    CONSTRAINT jobs_result_file_fkey FOREIGN KEY(result_file) REFERENCES files (id)
);

CREATE INDEX jobs_due ON jobs (due_at) WHERE state not in ('succeeded', 'failed', 'cancelled');

CREATE INDEX jobs_listing ON jobs (project_id, id);

CREATE INDEX jobs_live ON jobs (project_id) WHERE finished_at is null;

CREATE UNIQUE INDEX jobs_one_per_idempotency_key ON jobs (project_id, idempotency_key) WHERE idempotency_key is not null;

CREATE INDEX jobs_result_file ON jobs (result_file) WHERE result_file is not null;

CREATE INDEX jobs_to_register ON jobs (id) WHERE request @> '{"register_model": true}';

CREATE INDEX jobs_uncollected ON jobs (id) WHERE collected_generation < 2147483647;

CREATE INDEX jobs_with_events ON jobs (finished_at) WHERE finished_at is not null and not events_pruned;

CREATE INDEX jobs_with_metrics ON jobs (finished_at) WHERE finished_at is not null and not metrics_pruned;

CREATE TABLE upload_parts (
    id TEXT NOT NULL,
    upload_id TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    md5 TEXT NOT NULL,
    blocks INTEGER NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT upload_parts_pkey PRIMARY KEY (id),
    CONSTRAINT upload_parts_bytes_check CHECK (bytes > 0),
    CONSTRAINT upload_parts_upload_id_fkey FOREIGN KEY(upload_id) REFERENCES uploads (id) ON DELETE CASCADE
);

CREATE INDEX upload_parts_upload_id ON upload_parts (upload_id);

CREATE TABLE attempts (
    id TEXT NOT NULL,
    job_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    region TEXT NOT NULL,
    vm_size TEXT NOT NULL,
    capacity_type TEXT NOT NULL,
    engine TEXT DEFAULT 'scale_set' NOT NULL,
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
    evicted_noticed INTEGER DEFAULT '0' NOT NULL,
    evicted_unnoticed INTEGER DEFAULT '0' NOT NULL,
    survived INTEGER DEFAULT '0' NOT NULL,
    outlived TIMESTAMP WITH TIME ZONE[] DEFAULT '{}' NOT NULL,
    refills INTEGER DEFAULT '0' NOT NULL,
    refilled_at TIMESTAMP WITH TIME ZONE,
    seen_at TIMESTAMP WITH TIME ZONE,
    stop_by TIMESTAMP WITH TIME ZONE,
    cadence JSONB,
    access_until TIMESTAMP WITH TIME ZONE,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    over_at TIMESTAMP WITH TIME ZONE,
    ended_at TIMESTAMP WITH TIME ZONE,
    due_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    lease_token TEXT,
    lease_expires_at TIMESTAMP WITH TIME ZONE,
    hints BIGINT DEFAULT '0' NOT NULL,
    CONSTRAINT attempts_pkey PRIMARY KEY (id),
    CONSTRAINT attempts_job_id_number_key UNIQUE (job_id, number),
    CONSTRAINT attempts_state_check CHECK (state in ('pending', 'provisioning', 'starting', 'running', 'terminating', 'ended')),
    CONSTRAINT attempts_outcome_check CHECK (outcome in ('succeeded', 'evicted', 'no_capacity', 'misconfigured', 'provisioning_failed', 'unresponsive', 'trainer_error', 'cancelled', 'paused', 'over_budget')),
    CONSTRAINT attempts_capacity_type_check CHECK (capacity_type in ('spot', 'on_demand')),
    CONSTRAINT attempts_engine_check CHECK (engine in ('scale_set', 'azureml')),
    CONSTRAINT attempts_outcome_known_check CHECK ((state in ('terminating', 'ended')) = (outcome is not null)),
    CONSTRAINT attempts_end_is_dated_check CHECK ((state = 'ended') = (ended_at is not null)),
    CONSTRAINT attempts_outlived_is_counted_check CHECK (cardinality(outlived) <= survived),
    CONSTRAINT attempts_job_id_fkey FOREIGN KEY(job_id) REFERENCES jobs (id)
);

CREATE INDEX attempts_access ON attempts (job_id) WHERE state = 'ended' and access_until is not null;

CREATE INDEX attempts_due ON attempts (due_at) WHERE state <> 'ended';

CREATE INDEX attempts_ended ON attempts (ended_at);

CREATE INDEX attempts_evicted ON attempts (over_at) WHERE outcome = 'evicted';

CREATE INDEX attempts_left ON attempts (created_at) WHERE capacity_type = 'on_demand' and outcome = 'paused';

CREATE INDEX attempts_lives ON attempts (region, vm_size, capacity_type, engine, created_at) WHERE ran_at is not null;

CREATE UNIQUE INDEX attempts_one_live_per_job ON attempts (job_id) WHERE state not in ('terminating', 'ended');

CREATE INDEX attempts_refusals ON attempts (region, vm_size, capacity_type, engine, created_at) WHERE outcome = 'no_capacity';

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
    dropped_at TIMESTAMP WITH TIME ZONE,
    broken_because TEXT,
    kept_as TEXT DEFAULT 'recent' NOT NULL,
    manifest_sha256 TEXT NOT NULL,
    CONSTRAINT checkpoints_pkey PRIMARY KEY (id),
    CONSTRAINT checkpoints_job_id_path_key UNIQUE (job_id, path),
    CONSTRAINT checkpoints_kept_as_check CHECK (kept_as in ('recent', 'best', 'milestone')),
    CONSTRAINT checkpoints_job_id_fkey FOREIGN KEY(job_id) REFERENCES jobs (id)
);

CREATE INDEX checkpoints_newest ON checkpoints (job_id, step desc, generation desc) WHERE dropped_at is null;

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
    margin FLOAT,
    reward FLOAT,
    kl FLOAT,
    answer_tokens FLOAT,
    grader_errors INTEGER DEFAULT '0' NOT NULL,
    loss_scale FLOAT,
    mfu FLOAT,
    peak_memory BIGINT,
    slowest_rank INTEGER,
    slowest_ratio FLOAT,
    spike FLOAT,
    skipped BOOLEAN DEFAULT 'false' NOT NULL,
    CONSTRAINT metrics_pkey PRIMARY KEY (job_id, step),
    CONSTRAINT metrics_job_id_fkey FOREIGN KEY(job_id) REFERENCES jobs (id)
);

CREATE TABLE queue (
    job_id TEXT NOT NULL,
    project_id TEXT NOT NULL,
    priority TEXT NOT NULL,
    gpus INTEGER NOT NULL,
    wants JSONB NOT NULL,
    waits_since TIMESTAMP WITH TIME ZONE,
    admitted_at TIMESTAMP WITH TIME ZONE,
    region TEXT DEFAULT '' NOT NULL,
    cores INTEGER DEFAULT '0' NOT NULL,
    position INTEGER,
    code TEXT DEFAULT 'about_to_be_looked_at' NOT NULL,
    why TEXT DEFAULT '' NOT NULL,
    CONSTRAINT queue_pkey PRIMARY KEY (job_id),
    CONSTRAINT queue_priority_check CHECK (priority in ('low', 'normal', 'high')),
    CONSTRAINT queue_waits_or_is_admitted_check CHECK (admitted_at is null or waits_since is null),
    CONSTRAINT queue_job_id_fkey FOREIGN KEY(job_id) REFERENCES jobs (id),
    CONSTRAINT queue_project_id_fkey FOREIGN KEY(project_id) REFERENCES projects (id)
);

CREATE INDEX queue_admitted ON queue (project_id) WHERE admitted_at is not null;

CREATE INDEX queue_waiting ON queue (waits_since) WHERE waits_since is not null;

CREATE TABLE storage_ledger (
    id BIGSERIAL NOT NULL,
    job_id TEXT NOT NULL,
    tier TEXT NOT NULL,
    size BIGINT NOT NULL,
    month NUMERIC(14, 6) NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE NOT NULL,
    ended_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT storage_ledger_pkey PRIMARY KEY (id),
    CONSTRAINT storage_ledger_tier_check CHECK (tier in ('hot', 'cool', 'cold', 'archive')),
    CONSTRAINT storage_ledger_time_runs_forward_check CHECK (ended_at >= started_at),
    CONSTRAINT storage_ledger_holds_something_check CHECK (size > 0),
    CONSTRAINT storage_ledger_job_id_fkey FOREIGN KEY(job_id) REFERENCES jobs (id)
);

CREATE INDEX storage_ledger_ended ON storage_ledger (ended_at);

CREATE INDEX storage_ledger_job_id ON storage_ledger (job_id);

CREATE UNIQUE INDEX storage_ledger_one_open_row_per_tier ON storage_ledger (job_id, tier) WHERE ended_at is null;

CREATE TABLE storage_meters (
    id TEXT NOT NULL,
    began_at TIMESTAMP WITH TIME ZONE NOT NULL,
    looked_at TIMESTAMP WITH TIME ZONE,
    due_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    lease_token TEXT,
    lease_expires_at TIMESTAMP WITH TIME ZONE,
    hints BIGINT DEFAULT '0' NOT NULL,
    CONSTRAINT storage_meters_pkey PRIMARY KEY (id),
    CONSTRAINT storage_meters_id_fkey FOREIGN KEY(id) REFERENCES jobs (id)
);

CREATE INDEX storage_meters_due ON storage_meters (due_at);

CREATE TABLE tracker_runs (
    job_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    last_step INTEGER DEFAULT '0' NOT NULL,
    url TEXT,
    due_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    failing_since TIMESTAMP WITH TIME ZONE,
    closed BOOLEAN DEFAULT 'false' NOT NULL,
    CONSTRAINT tracker_runs_pkey PRIMARY KEY (job_id, kind),
    CONSTRAINT tracker_runs_kind_check CHECK (kind in ('wandb', 'mlflow', 'tensorboard')),
    CONSTRAINT tracker_runs_job_id_fkey FOREIGN KEY(job_id) REFERENCES jobs (id)
);

CREATE INDEX tracker_runs_due ON tracker_runs (due_at) WHERE not closed;

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

CREATE INDEX events_about_help ON events (job_id, seq) WHERE code in ('attempt.needs_help', 'attempt.help_over');

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
    lost_steps INTEGER DEFAULT '0' NOT NULL,
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

CREATE INDEX ledger_of_attempt ON ledger (attempt_id, vm_id);

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
    out_of_memory BOOLEAN DEFAULT 'false' NOT NULL,
    hopeless BOOLEAN DEFAULT 'false' NOT NULL,
    unhealthy_at FLOAT DEFAULT '0' NOT NULL,
    CONSTRAINT nodes_pkey PRIMARY KEY (id),
    CONSTRAINT nodes_attempt_id_vm_id_key UNIQUE (attempt_id, vm_id),
    CONSTRAINT nodes_phase_check CHECK (phase in ('ready', 'running', 'stopped', 'failed', 'finished')),
    CONSTRAINT nodes_directive_kind_check CHECK (directive_kind in ('start', 'checkpoint_and_stop', 'stop', 'carry_on')),
    CONSTRAINT nodes_attempt_id_fkey FOREIGN KEY(attempt_id) REFERENCES attempts (id)
)
 WITH (fillfactor = 70);

CREATE TABLE tier_moves (
    id TEXT NOT NULL,
    job_id TEXT NOT NULL,
    checkpoint_id TEXT,
    path TEXT NOT NULL,
    tier TEXT NOT NULL,
    priority TEXT NOT NULL,
    charge NUMERIC(14, 6) NOT NULL,
    asked_at TIMESTAMP WITH TIME ZONE NOT NULL,
    expected_at TIMESTAMP WITH TIME ZONE,
    begun_at TIMESTAMP WITH TIME ZONE,
    ended_at TIMESTAMP WITH TIME ZONE,
    outcome TEXT,
    due_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    lease_token TEXT,
    lease_expires_at TIMESTAMP WITH TIME ZONE,
    hints BIGINT DEFAULT '0' NOT NULL,
    CONSTRAINT tier_moves_pkey PRIMARY KEY (id),
    CONSTRAINT tier_moves_tier_check CHECK (tier in ('hot', 'cool', 'cold', 'archive')),
    CONSTRAINT tier_moves_priority_check CHECK (priority in ('standard', 'high')),
    CONSTRAINT tier_moves_outcome_check CHECK (outcome in ('done', 'gone', 'replaced')),
    CONSTRAINT tier_moves_end_has_an_outcome_check CHECK ((ended_at is null) = (outcome is null)),
    CONSTRAINT tier_moves_job_id_fkey FOREIGN KEY(job_id) REFERENCES jobs (id),
    CONSTRAINT tier_moves_checkpoint_id_fkey FOREIGN KEY(checkpoint_id) REFERENCES checkpoints (id)
);

CREATE INDEX tier_moves_asked ON tier_moves (asked_at);

CREATE INDEX tier_moves_due ON tier_moves (due_at) WHERE ended_at is null;

CREATE INDEX tier_moves_job_id ON tier_moves (job_id);

CREATE UNIQUE INDEX tier_moves_one_open_per_folder ON tier_moves (job_id, path) WHERE ended_at is null;

CREATE TABLE findings (
    job_id TEXT NOT NULL,
    path TEXT NOT NULL,
    node_id TEXT NOT NULL,
    attempt_id TEXT NOT NULL,
    generation INTEGER NOT NULL,
    file TEXT NOT NULL,
    reason TEXT NOT NULL,
    CONSTRAINT findings_pkey PRIMARY KEY (job_id, path, node_id, generation),
    CONSTRAINT findings_job_id_fkey FOREIGN KEY(job_id) REFERENCES jobs (id),
    CONSTRAINT findings_node_id_fkey FOREIGN KEY(node_id) REFERENCES nodes (id),
    CONSTRAINT findings_attempt_id_fkey FOREIGN KEY(attempt_id) REFERENCES attempts (id)
);
