/** What the form holds. It survives a reload of the page in the session storage of the tab. */

import type { Schemas } from "../../api/client";
import methods from "../../api/methods.json";

export type Method = Schemas["MethodRequest"]["type"];
export const METHODS: Record<Method, { label: string; rows: string[]; beta: boolean }> = methods;
export type Engine = Schemas["Engine"];

export interface Draft {
  from: string | null; // the job that the form was filled from
  trainingFile: string | null;
  validationFile: string | null;
  model: string;
  method: Method;
  epochs: string; // numbers are texts as typed; empty: the service chooses
  batchSize: string;
  learningRate: string;
  adapter: "lora" | "qlora" | "full";
  rank: string;
  maxSeqLen: string;
  beta: string;
  grader: string;
  suffix: string;
  seed: string;
  advanced: string;
  budget: string;
  onExhausted: Schemas["OnExhausted"];
  deadline: number | null; // Unix seconds
  onRisk: Schemas["OnRisk"];
  engine: Engine | "";
  regions: string;
  priority: Schemas["Priority"];
}

export type FieldName = Exclude<keyof Draft, "from">;
export type FieldErrors = Partial<Record<FieldName, string>>;

export const EMPTY: Draft = {
  from: null,
  trainingFile: null,
  validationFile: null,
  model: "",
  method: "supervised",
  epochs: "",
  batchSize: "",
  learningRate: "",
  adapter: "lora",
  rank: "",
  maxSeqLen: "",
  beta: "",
  grader: "",
  suffix: "",
  seed: "",
  advanced: "",
  budget: "",
  onExhausted: "pause",
  deadline: null,
  onRisk: "switch_to_on_demand",
  engine: "",
  regions: "",
  priority: "normal",
};

/** The method to use for rows of `format`: the present one if it can learn from them. */
export function methodFor(format: string | null | undefined, present: Method): Method {
  if (!format || METHODS[present].rows.includes(format)) return present;
  const fitting = Object.entries(METHODS).find(([, { rows }]) => rows.includes(format));
  return (fitting?.[0] as Method | undefined) ?? present;
}

const STORED = "rekindle.new";

export function storedDraft(): Draft {
  try {
    return { ...EMPTY, ...JSON.parse(sessionStorage.getItem(STORED) ?? "{}") };
  } catch {
    return EMPTY;
  }
}

export function storeDraft(draft: Draft | null): void {
  if (draft === null) sessionStorage.removeItem(STORED);
  else sessionStorage.setItem(STORED, JSON.stringify(draft));
}
