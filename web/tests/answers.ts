/** Answers of the API that several tests share. */

export const FILE = {
  id: "file-1",
  object: "file",
  bytes: 7775,
  created_at: 1,
  filename: "chats.jsonl",
  purpose: "fine-tune",
  status: "processed",
  format: "chat",
  examples: 48,
  counts: { examples: 48, tokens: 1776, warnings: 0, warnings_by_code: {} },
};

export const PREVIEW = {
  object: "file.preview",
  file: FILE.id,
  model: "rekindle/tiny-llama",
  method: "supervised",
  max_seq_len: 512,
  splits_answers: false,
  data: [
    {
      line: 1,
      examples: [
        {
          part: "chat",
          tokens: 20,
          kept_tokens: 20,
          trained_tokens: 6,
          segments: [
            { kind: "context", text: "<|bos|><|user|>When do you open?<|end|><|assistant|>" },
            { kind: "trained", text: "We open at eight.<|end|>" },
          ],
        },
      ],
      problems: [],
    },
  ],
  has_more: false,
  next_line: null,
};

const GIB = 1024 ** 3;

const OPTION = {
  region: "eastus",
  vm_size: "Standard_ND96amsr_A100_v4",
  capacity_type: "spot",
  engine: "scale_set",
  hourly: "8.44",
  on_demand_hourly: "32.77",
  nodes: 1,
  processes_per_node: 8,
  zero_stage: 1,
  micro_batch: 1,
  accumulation: 1,
  global_batch: 8,
  total_steps: 1200,
  memory: {
    parameters: 16 * GIB,
    gradients: GIB,
    optimizer: 2 * GIB,
    activations: 4 * GIB,
    logits: GIB,
    update: 0,
    buffers: GIB,
    runtime: 3 * GIB,
    cache: 0,
    host: 0,
    total: 28 * GIB,
    needed: 31 * GIB,
  },
  seconds_per_step: 3,
  expected_evictions: 0.4,
  duration_p50: 3600,
  duration_p90: 5400,
  cost_p50: "8.00",
  cost_p90: "11.00",
  on_demand_cost: "33.00",
  gpu_memory_gib: 80,
  eta_seconds: { p50: 3600, p90: 5400 },
  cost: { p50: "8.00", p90: "11.00" },
  budget_needed: "12.00",
  seconds_needed: 7200,
  fits_budget: null,
  meets_deadline: null,
};

const FAST = {
  ...OPTION,
  vm_size: "Standard_ND96isr_H100_v5",
  duration_p50: 1800,
  duration_p90: 2400,
  eta_seconds: { p50: 1800, p90: 2400 },
  cost_p50: "14.00",
  cost_p90: "18.00",
  budget_needed: "19.00",
  seconds_needed: 2600,
};

const RECIPE = {
  n_epochs: 25,
  batch_size: 1,
  global_batch: 1,
  total_steps: 1200,
  learning_rate: 0.0002,
  max_seq_len: 128,
  precision: "bf16",
  lora: { rank: 8, alpha: 32, dropout: 0 },
  warnings: [],
};

const PLAN = {
  ...OPTION,
  currency: "USD",
  recipe: RECIPE,
  options: [OPTION, FAST],
  alternatives: [],
  rejected: [],
  why: "The cheapest of 2 offerings; it needs 31 of 80 GiB per GPU.",
  warnings: [],
};

export function plan() {
  return {
    id: "plan-1",
    object: "fine_tuning.plan",
    created_at: 1,
    expires_at: 2,
    model: "rekindle/tiny-llama",
    chosen: OPTION,
    next: [FAST],
    suggestions: [],
    plan: PLAN,
  };
}

export const JOB = {
  id: "ftjob-aaaaaa",
  object: "fine_tuning.job",
  created_at: 1_000,
  finished_at: 2_000,
  error: null,
  fine_tuned_model: null,
  hyperparameters: { batch_size: 1, learning_rate_multiplier: 1, n_epochs: 25 },
  model: "rekindle/tiny-llama",
  seed: 7,
  status: "succeeded",
  phase: "done",
  training_file: FILE.id,
  validation_file: null,
  metadata: null,
  method: {
    type: "supervised",
    supervised: {
      hyperparameters: { batch_size: 1, learning_rate_multiplier: 1, n_epochs: 25 },
    },
  },
  user_provided_suffix: "tone-v1",
  progress: {
    step: 1200,
    total_steps: 1200,
    loss: 0.8,
    valid_loss: null,
    reward: null,
    margin: null,
    lost_steps: 23,
  },
  cost: { spent: "2.00", saved: "5.80" },
  attempts: { count: 2, current: null, evictions: 1 },
  infrastructure: {
    budget: { amount: "20", on_exhausted: "pause", currency: "USD" },
    deadline: null,
    on_deadline_risk: "switch_to_on_demand",
    max_price: null,
    regions: null,
    engine: null,
    priority: "normal",
  },
  plan: PLAN,
};
