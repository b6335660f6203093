/** The configuration of jobs as rows, and the figures of their results. */

import type { Schemas } from "../../api/client";
import { decimal, duration, integer, money } from "../../format";

export type Job = Schemas["Job"];

export interface ConfigurationRow {
  name: string; // as the API names it
  values: (string | null)[]; // of each job
  differs: boolean;
}

const MACHINES = [
  "region",
  "vm_size",
  "capacity_type",
  "engine",
  "nodes",
  "processes_per_node",
  "zero_stage",
  "micro_batch",
  "accumulation",
] as const;

export function configuration(jobs: readonly Job[]): ConfigurationRow[] {
  const flat = jobs.map(flatConfiguration);
  const names = [...new Set(flat.flatMap((one) => [...one.keys()]))];
  return names.map((name) => {
    const values = flat.map((one) => one.get(name) ?? null);
    return { name, values, differs: new Set(values).size > 1 };
  });
}

function flatConfiguration(job: Job): Map<string, string> {
  const { warnings: _, ...recipe } = job.plan.recipe as Record<string, unknown>;
  const { hyperparameters: __, ...options } = (job.method[job.method.type] ?? {}) as Record<
    string,
    unknown
  >;
  const flat = new Map<string, string>();
  flatten(flat, "", {
    model: job.model,
    training_file: job.training_file,
    validation_file: job.validation_file,
    seed: job.seed,
    method: { type: job.method.type, [job.method.type]: options },
    training: recipe,
    machines: Object.fromEntries(MACHINES.map((name) => [name, job.plan[name]])),
    infrastructure: job.infrastructure,
    metadata: job.metadata,
  });
  return flat;
}

function flatten(flat: Map<string, string>, name: string, value: unknown): void {
  if (value === null || value === undefined || value === "") return;
  if (typeof value !== "object") {
    flat.set(name, String(value));
  } else if (Array.isArray(value)) {
    if (value.length > 0) flat.set(name, value.map(String).join(", "));
  } else {
    for (const [member, inner] of Object.entries(value)) {
      flatten(flat, name === "" ? member : `${name}.${member}`, inner);
    }
  }
}

export interface Result {
  label: string;
  of: (job: Job) => number | null;
  format: (value: number) => string;
  best: "lowest" | "highest";
  ofFinished: boolean; // compares only jobs that are over
}

const finalLoss = { format: decimal, best: "lowest", ofFinished: false } as const;
const gain = { format: decimal, best: "highest", ofFinished: false } as const;
const expense = { best: "lowest", ofFinished: true } as const;

export const RESULTS: readonly Result[] = [
  { label: "Training loss, last step", of: (job) => job.progress.loss, ...finalLoss },
  { label: "Validation loss, last", of: (job) => job.progress.valid_loss, ...finalLoss },
  { label: "Reward, last step", of: (job) => job.progress.reward, ...gain },
  { label: "Margin, last step", of: (job) => job.progress.margin, ...gain },
  { label: "Cost", of: (job) => Number(job.cost.spent), format: money, ...expense },
  {
    label: "Saved against on demand",
    of: (job) => Number(job.cost.saved),
    format: money,
    best: "highest",
    ofFinished: true,
  },
  { label: "Evictions", of: (job) => job.attempts.evictions, format: integer, ...expense },
  { label: "Repeated steps", of: (job) => job.progress.lost_steps, format: integer, ...expense },
  { label: "Wall time", of: wallTime, format: duration, ...expense },
];

/** Seconds from the request to the end; null while the job goes on. */
function wallTime(job: Job): number | null {
  return job.finished_at === null ? null : job.finished_at - job.created_at;
}

/** Which jobs have the best value; none where all have the same, or fewer than two have one. */
export function bestOf(result: Result, jobs: readonly Job[]): boolean[] {
  const values = jobs.map((job) =>
    result.ofFinished && job.status !== "succeeded" ? null : result.of(job),
  );
  const known = values.filter((value) => value !== null);
  if (new Set(known).size < 2) return jobs.map(() => false);
  const best = result.best === "lowest" ? Math.min(...known) : Math.max(...known);
  return values.map((value) => value === best);
}
