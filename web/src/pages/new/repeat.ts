/** Fill the form from a job that was made before. */

import type { Schemas } from "../../api/client";
import { type Draft, EMPTY } from "./draft";
import { isObject, pruned } from "./request";

/**
 * Options of the training that a plan's recipe shows under the name that a request gives them,
 * with the value that a request has without them. Precision is always named: its default differs
 * between deployments.
 */
const SAME_IN_RECIPE: Record<string, unknown> = {
  precision: null,
  gradient_checkpointing: true,
  packing: false,
  mix: null,
  curriculum: null,
  train_last_n_layers: null,
  train_embeddings: true,
  loss_chunk: 0,
  offload: "",
  ema_decay: 0,
  compiled: false,
  fused_kernels: false,
  checkpoint_seconds: null,
  keep_checkpoints: 3,
  milestone_every_steps: 0,
  rollout_offload: false,
  zero_plus_plus: [],
  nccl: [],
};

export function draftOf(job: Schemas["Job"], now: number): Draft {
  const recipe = job.plan.recipe as Record<string, unknown>;
  const options = isObject(job.method[job.method.type]) ? { ...job.method[job.method.type] } : {};
  const hyper = isObject(options.hyperparameters) ? options.hyperparameters : {};
  const { hyperparameters: _, grader, ...rest } = options;
  const { budget, deadline, engine, regions, priority, on_deadline_risk, max_price } =
    job.infrastructure;
  const lora = isObject(recipe.lora) ? recipe.lora : null;
  return {
    ...EMPTY,
    from: job.id,
    trainingFile: job.training_file,
    validationFile: job.validation_file,
    model: job.model,
    method: job.method.type,
    epochs: text(job.hyperparameters.n_epochs),
    batchSize: text(job.hyperparameters.batch_size),
    learningRate: text(recipe.learning_rate),
    adapter: lora === null ? "full" : lora.quantized === true ? "qlora" : "lora",
    rank: text(lora?.rank),
    maxSeqLen: text(recipe.max_seq_len),
    beta: text(hyper.beta),
    grader: isObject(grader) ? JSON.stringify(grader, null, 2) : "",
    suffix: job.user_provided_suffix ?? "",
    seed: text(job.seed),
    budget: budget?.amount ?? "",
    onExhausted: budget?.on_exhausted ?? "pause",
    deadline: deadline !== null && deadline > now ? deadline : null,
    onRisk: on_deadline_risk,
    engine: engine ?? "",
    regions: regions?.join(", ") ?? "",
    priority,
    advanced: advancedText({
      method: { [job.method.type]: rest },
      training: { adapter: adapterOptions(lora), ...recipeOptions(recipe) },
      infrastructure: { max_price },
      metadata: job.metadata,
    }),
  };
}

function recipeOptions(recipe: Record<string, unknown>): Record<string, unknown> {
  const changed = Object.entries(SAME_IN_RECIPE)
    .filter(([name, usual]) => name in recipe && recipe[name] !== usual)
    .map(([name]) => [name, recipe[name]]);
  const guard = isObject(recipe.spike_guard) ? recipe.spike_guard : {};
  return { ...Object.fromEntries(changed), on_spike: guard.on_spike };
}

function adapterOptions(lora: Record<string, unknown> | null): Record<string, unknown> | null {
  if (lora === null) return null;
  const usual = Number(lora.rank) * 2;
  return { alpha: lora.alpha === usual ? null : lora.alpha, dropout: lora.dropout || null };
}

function advancedText(options: Record<string, unknown>): string {
  const kept = pruned(options);
  return isObject(kept) && Object.keys(kept).length > 0 ? JSON.stringify(kept, null, 2) : "";
}

function text(value: unknown): string {
  return typeof value === "number" || typeof value === "string" ? String(value) : "";
}
