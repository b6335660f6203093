/** What the addresses keep: filters, the open tab, the jobs that are compared. */

import type { paths } from "./api/schema";

type ListQuery = NonNullable<paths["/v1/fine_tuning/jobs"]["get"]["parameters"]["query"]>;
export type PhaseGroup = NonNullable<ListQuery["phase"]>[number];
export type Sort = NonNullable<ListQuery["sort"]>;

export interface JobsSearch {
  search?: string;
  phase?: PhaseGroup[];
  sort?: Sort;
  order?: "asc" | "desc";
}

export interface JobSearch {
  tab?: "logs" | "events" | "checkpoints" | "configuration" | "data" | "machines";
}

export interface CompareSearch {
  jobs?: string[];
}

export const PHASE_GROUPS = [
  "training",
  "waiting",
  "recovering",
  "paused",
  "succeeded",
  "failed",
  "cancelled",
] as const satisfies PhaseGroup[];
const SORTS = ["created", "updated", "cost", "progress", "name"] as const satisfies Sort[];
const TABS = ["logs", "events", "checkpoints", "configuration", "data", "machines"] as const;

export interface NewSearch {
  from?: string; // the job that is repeated
  model?: string;
}

export function newSearch(raw: Record<string, unknown>): NewSearch {
  return { from: text(raw.from), model: text(raw.model) };
}

export function jobsSearch(raw: Record<string, unknown>): JobsSearch {
  const asked = Array.isArray(raw.phase) ? raw.phase : [];
  const phase = PHASE_GROUPS.filter((group) => asked.includes(group));
  return {
    search: text(raw.search),
    phase: phase.length > 0 ? phase : undefined,
    sort: oneOf(SORTS, raw.sort),
    order: oneOf(["asc", "desc"] as const, raw.order),
  };
}

export function jobSearch(raw: Record<string, unknown>): JobSearch {
  return { tab: oneOf(TABS, raw.tab) };
}

export interface ModelsSearch {
  model?: string;
  search?: string;
}

export function modelsSearch(raw: Record<string, unknown>): ModelsSearch {
  return { model: text(raw.model), search: text(raw.search) };
}

export const RANGES = [7, 30, 90] as const;

export interface CostsSearch {
  days?: (typeof RANGES)[number];
}

export function costsSearch(raw: Record<string, unknown>): CostsSearch {
  return { days: RANGES.find((days) => days === Number(raw.days)) };
}

export interface FleetSearch {
  region?: string;
  place?: string; // whose history is shown: SIZE@REGION
  days?: (typeof RANGES)[number];
}

export function fleetSearch(raw: Record<string, unknown>): FleetSearch {
  return { region: text(raw.region), place: text(raw.place), ...costsSearch(raw) };
}

export function compareSearch(raw: Record<string, unknown>): CompareSearch {
  const jobs = Array.isArray(raw.jobs) ? raw.jobs.filter((id) => typeof id === "string") : [];
  return jobs.length > 0 ? { jobs } : {};
}

/** The router reads `search=123` as a number. */
function text(raw: unknown): string | undefined {
  if (typeof raw === "number" || typeof raw === "boolean") return String(raw);
  return typeof raw === "string" && raw !== "" ? raw : undefined;
}

function oneOf<T extends string>(known: readonly T[], raw: unknown): T | undefined {
  return known.find((one) => one === raw);
}
