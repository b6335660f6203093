import { type Job, loraOf } from "./use-live-job";

/** The curl command that POSTs the same job again, with the options that it was resolved to. */
export function repeatCommand(job: Job): string {
  const { infrastructure } = job;
  const request = {
    model: job.model,
    training_file: job.training_file,
    validation_file: job.validation_file ?? undefined,
    suffix: job.user_provided_suffix ?? undefined,
    seed: job.seed,
    method: job.method,
    training: training(job),
    infrastructure: {
      budget: infrastructure.budget ?? undefined,
      regions: infrastructure.regions ?? undefined,
      engine: infrastructure.engine ?? undefined,
    },
  };
  const text = JSON.stringify(request, null, 2).replaceAll("'", "'\\''");
  return [
    `curl ${location.origin}/v1/fine_tuning/jobs \\`,
    `  -H "Authorization: Bearer $OPENAI_API_KEY" -H "Content-Type: application/json" \\`,
    `  -d '${text}'`,
  ].join("\n");
}

function training(job: Job) {
  const { recipe } = job.plan;
  const lora = loraOf(job);
  return {
    adapter:
      lora === null
        ? undefined
        : { type: "lora", r: lora.rank, alpha: lora.alpha, dropout: lora.dropout },
    max_seq_len: recipe.max_seq_len,
    precision: recipe.precision,
    learning_rate: recipe.learning_rate,
  };
}
