/** From base models to what was tuned from them, by the names that the API gives. */

import type { Schemas } from "../../api/client";

export type Model = Schemas["Model"];

export interface Branch {
  key: string; // a base model's name, or the id of the job that made the model
  model: Model | null; // null: the job has no final model, or it was deleted
  name: string; // short, for people
  fromStep: number | null; // trained from this checkpoint of the branch above
  checkpoints: Model[]; // by step, the last first
  children: Branch[];
}

const CHECKPOINT = /:ckpt-step-(\d+)$/;

/** The job and the step that a model's name tells; null for base models. */
export function sourceOf(name: string): { job: string; step: number | null } | null {
  if (!/^(ft:|ftjob-)/.test(name)) return null;
  const step = CHECKPOINT.exec(name)?.[1];
  const job = name.replace(CHECKPOINT, "").split(":").at(-1) ?? name;
  return { job, step: step === undefined ? null : Number(step) };
}

/** The suffix of a tuned model, its job if it has none, the whole name of a base model. */
export function shortName(name: string): string {
  if (sourceOf(name) === null) return name;
  const [job = name, suffix = ""] = name.replace(CHECKPOINT, "").split(":").reverse();
  return suffix === "" || suffix.startsWith("proj-") ? job : suffix;
}

/** Base models, each with what was tuned from it below; a deleted link keeps its place. */
export function lineage(models: readonly Model[]): Branch[] {
  const branches = new Map<string, Branch>();
  const branch = (name: string): Branch => {
    const key = sourceOf(name)?.job ?? name;
    const found = branches.get(key);
    if (found !== undefined) return found;
    const made = { key, model: null, name: shortName(name), fromStep: null };
    const added = { ...made, checkpoints: [], children: [] };
    branches.set(key, added);
    return added;
  };
  for (const model of models) {
    const own = branch(model.id);
    if (model.step == null) own.model = model;
    else own.checkpoints.push(model);
  }
  const below = new Set<Branch>();
  for (const model of models) {
    const own = branch(model.id);
    const base = model.base_model ?? null;
    if (base === null || below.has(own)) continue;
    const above = branch(base);
    own.fromStep = sourceOf(base)?.step ?? null;
    above.children.push(own);
    below.add(own);
  }
  for (const lost of [...branches.values()]) {
    const first = /^ft:(.+?):proj-/.exec(nameBelow(lost))?.[1];
    if (lost.model !== null || below.has(lost) || first === undefined) continue;
    branch(first).children.push(lost);
    below.add(lost);
  }
  const all = [...branches.values()];
  for (const { checkpoints, children } of all) {
    checkpoints.sort((a, b) => (b.step ?? 0) - (a.step ?? 0));
    children.sort((a, b) => createdOf(b) - createdOf(a));
  }
  return all.filter((one) => !below.has(one)).sort((a, b) => a.name.localeCompare(b.name));
}

/** A name that tells the first base model of a branch whose own model is deleted. */
function nameBelow(lost: Branch): string {
  if (sourceOf(lost.key) === null) return "";
  return lost.children[0]?.model?.base_model ?? lost.children[0]?.checkpoints[0]?.base_model ?? "";
}

function createdOf({ model, checkpoints }: Branch): number {
  return model?.created ?? checkpoints[0]?.created ?? 0;
}

/** The branches whose names match, with all that leads to them. */
export function matching(branches: readonly Branch[], search: string): Branch[] {
  const wanted = search.toLowerCase();
  return branches.flatMap((branch) => {
    const names = [branch.key, branch.name, branch.model?.id ?? ""];
    if (names.some((name) => name.toLowerCase().includes(wanted))) return [branch];
    const children = matching(branch.children, search);
    return children.length > 0 ? [{ ...branch, children }] : [];
  });
}
