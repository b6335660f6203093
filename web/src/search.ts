/** What the addresses keep: filters, the open tab, the jobs that are compared. */

export interface JobsSearch {
  search?: string;
  status?: string;
  sort?: "created_at" | "updated_at" | "spent" | "progress" | "name";
  order?: "asc" | "desc";
}

export interface JobSearch {
  tab?: "logs" | "events" | "checkpoints" | "configuration" | "data" | "machines";
}

export interface CompareSearch {
  jobs?: string[];
}

export interface NewSearch {
  from?: string; // the job to repeat
}

const SORTS = ["created_at", "updated_at", "spent", "progress", "name"] as const;
const TABS = ["logs", "events", "checkpoints", "configuration", "data", "machines"] as const;

export function jobsSearch(raw: Record<string, unknown>): JobsSearch {
  return {
    search: text(raw.search),
    status: text(raw.status),
    sort: oneOf(SORTS, raw.sort),
    order: oneOf(["asc", "desc"] as const, raw.order),
  };
}

export function jobSearch(raw: Record<string, unknown>): JobSearch {
  return { tab: oneOf(TABS, raw.tab) };
}

export function compareSearch(raw: Record<string, unknown>): CompareSearch {
  const jobs = Array.isArray(raw.jobs) ? raw.jobs.filter((id) => typeof id === "string") : [];
  return jobs.length > 0 ? { jobs } : {};
}

export function newSearch(raw: Record<string, unknown>): NewSearch {
  return { from: text(raw.from) };
}

function text(raw: unknown): string | undefined {
  return typeof raw === "string" && raw !== "" ? raw : undefined;
}

function oneOf<T extends string>(known: readonly T[], raw: unknown): T | undefined {
  return known.find((one) => one === raw);
}
