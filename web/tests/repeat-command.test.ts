import { expect, test } from "vitest";
import { curlCommand, submitCommand } from "../src/pages/job/repeat-command";
import type { Job } from "../src/pages/job/use-live-job";
import { JOB } from "./answers";

const NOW = 1_800_000_000;
const ASKED = {
  ...JOB,
  training_file: "file-train",
  validation_file: "file-check",
  metadata: { "team.name": "it's = 'red'" },
  hyperparameters: { batch_size: 4, learning_rate_multiplier: 2, n_epochs: 3 },
  integrations: [],
  elastic: { min_nodes: 1, node_counts: [1, 2] },
  infrastructure: {
    ...JOB.infrastructure,
    budget: { amount: "120.50", on_exhausted: "cancel", currency: "USD" },
    deadline: 4_000_000_000,
    on_deadline_risk: "notify",
    max_price: { per: "gpu_hour", amount: "9.5", currency: "USD" },
    regions: ["eastus", "westeurope"],
    engine: "scale_set",
    priority: "high",
  },
  plan: {
    ...JOB.plan,
    nodes: 2,
    recipe: { ...JOB.plan.recipe, checkpoint_seconds: 90, packing: true, ema_decay: 0.5 },
  },
} as unknown as Job;
const LATE = { ...ASKED, infrastructure: { ...ASKED.infrastructure, deadline: NOW - 1 } };

test("the command has every option of the job; a test of the command line runs it", async () => {
  await expect(`${submitCommand(ASKED, NOW)}\n`).toMatchFileSnapshot("repeat-command.txt");
});

test("curl sends the same options, quoted for a shell", () => {
  const command = curlCommand(ASKED, NOW);
  const body = command.slice(command.indexOf("-d '") + 4, -1).replaceAll("'\\''", "'");
  expect(JSON.parse(body)).toMatchObject({
    metadata: ASKED.metadata,
    training: { checkpoint_seconds: 90, adapter: { type: "lora", r: 8, alpha: 32 } },
    infrastructure: {
      nodes: 2,
      elastic: { min_nodes: 1 },
      deadline: 4_000_000_000,
      priority: "high",
    },
  });
});

test("a deadline that has passed is left out", () => {
  expect(submitCommand(ASKED, NOW)).toContain("--deadline 4000000000");
  expect(submitCommand(LATE, NOW)).not.toContain("deadline ");
});
