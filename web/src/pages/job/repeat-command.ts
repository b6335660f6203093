/** Commands that make the same job again, with the options that it was resolved to. */

import { draftOf } from "../new/repeat";
import { isObject, pruned, requestOf } from "../new/request";
import type { Job } from "./use-live-job";

type Json = Record<string, unknown>;

/** The body for POST /v1/fine_tuning/jobs, without a deadline that has passed. */
function repeatRequest(job: Job, now: number): Json {
  const made = requestOf(draftOf(job, now));
  const request = "request" in made ? (made.request as Json) : {};
  const { elastic, integrations } = job;
  const infrastructure = {
    ...(request.infrastructure as Json | undefined),
    nodes: job.plan.nodes,
    elastic: elastic === null ? undefined : { min_nodes: elastic.min_nodes },
  };
  return pruned({ ...request, infrastructure, integrations }) as Json;
}

export function curlCommand(job: Job, now: number): string {
  return [
    `curl ${location.origin}/v1/fine_tuning/jobs \\`,
    `  -H "Authorization: Bearer $OPENAI_API_KEY" -H "Content-Type: application/json" \\`,
    `  -d ${quoted(JSON.stringify(repeatRequest(job, now), null, 2))}`,
  ].join("\n");
}

const OPTIONS: [path: RegExp, option: string][] = [
  [/^validation_file$/, "--validation"],
  [/^model$/, "--model"],
  [/^suffix$/, "--suffix"],
  [/^seed$/, "--seed"],
  [/^method\.type$/, "--method"],
  [/\.n_epochs$/, "--epochs"],
  [/\.batch_size$/, "--batch-size"],
  [/^training\.learning_rate$/, "--learning-rate"],
  [/^training\.max_seq_len$/, "--max-seq-len"],
  [/^training\.adapter\.r$/, "--lora-rank"],
  [/^infrastructure\.nodes$/, "--nodes"],
  [/^infrastructure\.budget\.amount$/, "--budget"],
  [/^infrastructure\.deadline$/, "--deadline"],
  [/^infrastructure\.regions$/, "--regions"],
  [/^infrastructure\.engine$/, "--engine"],
  [/^infrastructure\.priority$/, "--priority"],
];

/** `rekindle submit` with its options, and --set for members that have none. */
export function submitCommand(job: Job, now: number): string {
  const { training_file, ...rest } = repeatRequest(job, now);
  const given = members(rest).filter(([path, value]) => value !== USUAL[path]);
  const words = given.map(([path, value]) => {
    const option = OPTIONS.find(([pattern]) => pattern.test(path))?.[1];
    return option === undefined
      ? `--set ${quoted(`${path}=${JSON.stringify(value)}`)}`
      : `${option} ${quoted(Array.isArray(value) ? value.join(",") : String(value))}`;
  });
  return [`rekindle submit ${quoted(String(training_file))}`, ...words].join(" \\\n  ");
}

const USUAL: Record<string, unknown> = {
  "method.type": "supervised",
  "infrastructure.budget.on_exhausted": "pause",
  "infrastructure.on_deadline_risk": "switch_to_on_demand",
  "infrastructure.max_price.per": "gpu_hour",
  "infrastructure.max_price.currency": "USD",
};
const WHOLE = /^metadata$|\.grader$/; // names in these are the user's own

/** Each member by its dotted path. */
function members(json: Json, prefix = ""): [path: string, value: unknown][] {
  return Object.entries(json).flatMap(([name, value]): [string, unknown][] => {
    const path = prefix + name;
    return isObject(value) && !WHOLE.test(path) ? members(value, `${path}.`) : [[path, value]];
  });
}

/** As one word of a POSIX shell. */
function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
