/** The form as a request of the API, and the API's errors at the fields of the form. */

import type { Schemas } from "../../api/client";
import { type Draft, type FieldErrors, type FieldName, METHODS } from "./draft";

export type JobRequest = Schemas["JobRequest"];
type Json = Record<string, unknown>;

/** The body for POST /v1/fine_tuning/jobs, or what must be corrected before there is one. */
export function requestOf(draft: Draft): { request: JobRequest } | { errors: FieldErrors } {
  const errors: FieldErrors = {};
  if (draft.trainingFile === null) errors.trainingFile = "Choose or upload a training file.";
  if (draft.model === "") errors.model = "Choose a base model.";
  const advanced = parsed(draft.advanced);
  if (advanced === undefined) errors.advanced = NOT_AN_OBJECT;
  const grader = draft.method === "reinforcement" ? parsed(draft.grader) : {};
  if (grader === undefined) errors.grader = NOT_AN_OBJECT;
  if (grader !== undefined && draft.method === "reinforcement" && isEmpty(grader)) {
    errors.grader = "Reinforcement needs a grader, for example of type string_check.";
  }
  if (Object.keys(errors).length > 0) return { errors };
  const body = pruned({
    model: draft.model,
    training_file: draft.trainingFile,
    validation_file: draft.validationFile,
    suffix: draft.suffix,
    seed: number(draft.seed),
    method: methodOf(draft, grader),
    training: trainingOf(draft),
    infrastructure: infrastructureOf(draft),
  });
  return { request: merged(body as Json, advanced ?? {}) as unknown as JobRequest };
}

const NOT_AN_OBJECT = 'This is not a JSON object. Write it like {"training": {"packing": true}}.';

function methodOf(draft: Draft, grader: Json | undefined): Json {
  const hyperparameters = {
    n_epochs: number(draft.epochs),
    batch_size: number(draft.batchSize),
    beta: METHODS[draft.method].beta ? number(draft.beta) : undefined,
  };
  const options: Json = { hyperparameters };
  if (draft.method === "reinforcement") options.grader = grader;
  return { type: draft.method, [draft.method]: options };
}

function trainingOf(draft: Draft): Json {
  const adapter =
    draft.adapter === "full" ? undefined : { type: draft.adapter, r: number(draft.rank) };
  return {
    adapter,
    max_seq_len: number(draft.maxSeqLen),
    learning_rate: number(draft.learningRate),
  };
}

function infrastructureOf(draft: Draft): Json {
  const hasBudget = draft.budget.trim() !== "";
  return {
    budget: hasBudget
      ? { amount: draft.budget.trim(), on_exhausted: draft.onExhausted }
      : undefined,
    deadline: draft.deadline ?? undefined,
    on_deadline_risk: draft.deadline === null ? undefined : draft.onRisk,
    engine: draft.engine,
    regions: draft.regions.split(/[\s,]+/).filter(Boolean),
    priority: draft.priority === "normal" ? undefined : draft.priority,
  };
}

/** The request without what changes no plan: a key for plans of the same training. */
export function planRequest(request: JobRequest): JobRequest {
  const { suffix: _, seed: __, metadata: ___, ...rest } = request;
  return rest as JobRequest;
}

const FIELDS: readonly [RegExp, FieldName][] = [
  [/^model$/, "model"],
  [/^training_file/, "trainingFile"],
  [/^validation_file/, "validationFile"],
  [/^suffix$/, "suffix"],
  [/^seed$/, "seed"],
  [/^method\.type$/, "method"],
  [/n_epochs$/, "epochs"],
  [/batch_size$/, "batchSize"],
  [/^training\.learning_rate$/, "learningRate"],
  [/^training\.adapter\.r$/, "rank"],
  [/^training\.adapter/, "adapter"],
  [/^training\.max_seq_len$/, "maxSeqLen"],
  [/^method\.(?!reinforcement)\w+\..*beta$/, "beta"],
  [/^method\.reinforcement\.grader/, "grader"],
  [/^infrastructure\.budget\.on_exhausted/, "onExhausted"],
  [/^infrastructure\.budget/, "budget"],
  [/^infrastructure\.deadline/, "deadline"],
  [/^infrastructure\.on_deadline_risk/, "onRisk"],
  [/^infrastructure\.engine/, "engine"],
  [/^infrastructure\.regions/, "regions"],
  [/^infrastructure\.priority/, "priority"],
];

/** The field for an error's `param`; options that only the JSON can hold are at `advanced`. */
export function fieldOf(param: string | null, draft: Draft): FieldName | null {
  if (param === null) return null;
  if (has(parsed(draft.advanced) ?? {}, param)) return "advanced";
  const found = FIELDS.find(([pattern]) => pattern.test(param));
  if (found !== undefined) return found[1];
  return /^(training|method)\./.test(param) ? "advanced" : null;
}

function has(json: Json, path: string): boolean {
  let at: unknown = json;
  for (const name of path.split(".")) {
    if (typeof at !== "object" || at === null || !(name in at)) return false;
    at = (at as Json)[name];
  }
  return true;
}

/** What was typed as a number; other text goes to the API as it is, which says what is wrong. */
function number(text: string): number | string | undefined {
  const trimmed = text.trim();
  if (trimmed === "") return undefined;
  return Number.isNaN(Number(trimmed)) ? trimmed : Number(trimmed);
}

/** A JSON object; `{}` for no text, undefined for anything else. */
export function parsed(text: string): Json | undefined {
  if (text.trim() === "") return {};
  try {
    const json: unknown = JSON.parse(text);
    return isObject(json) ? json : undefined;
  } catch {
    return undefined;
  }
}

/** `over` laid over `base`, member by member. */
function merged(base: Json, over: Json): Json {
  const all = { ...base };
  for (const [name, value] of Object.entries(over)) {
    const below = all[name];
    all[name] = isObject(value) && isObject(below) ? merged(below, value) : value;
  }
  return all;
}

/** Without members that are undefined, null or empty. */
export function pruned(value: unknown): unknown {
  if (!isObject(value)) return value;
  const kept = Object.entries(value)
    .map(([name, member]) => [name, pruned(member)] as const)
    .filter(([, member]) => !isEmpty(member));
  return Object.fromEntries(kept);
}

export function isObject(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isEmpty(value: unknown): boolean {
  if (value === undefined || value === null || value === "") return true;
  if (Array.isArray(value)) return value.length === 0;
  return isObject(value) && Object.keys(value).length === 0;
}
