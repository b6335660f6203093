/** Plans of the form as it is, and which of their options keep the limits. */

import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { ApiError, api, body, type Schemas } from "../../api/client";
import { type JobRequest, planRequest } from "./request";

export type StoredPlan = Schemas["StoredPlan"];

export type PlanOption = Schemas["OfferedOption"];

export interface Limits {
  budget: number | null; // US dollars
  deadline: number | null; // Unix seconds
}

export interface Verdict {
  budget: boolean;
  deadline: boolean;
}

export interface PlanState {
  plan: StoredPlan | null; // the newest plan of this training, perhaps with earlier limits
  isFresh: boolean; // it was made for the form as it is
  isBusy: boolean;
  error: ApiError | null;
  retry: () => void;
}

const SETTLE_MS = 400;

/** Plan the request once it rests; null while there is none. */
export function usePlan(request: JobRequest | null): PlanState {
  const wanted = request === null ? null : JSON.stringify(planRequest(request));
  const settled = useSettled(wanted);
  const query = useQuery({
    queryKey: ["plan", settled],
    queryFn: () => body(api.POST("/v1/fine_tuning/plans", { body: JSON.parse(settled ?? "{}") })),
    enabled: settled !== null,
    staleTime: 600_000,
    gcTime: 600_000,
  });
  const [last, setLast] = useState<{ training: string; plan: StoredPlan } | null>(null);
  const training = settled === null ? null : trainingOf(settled);
  if (query.data !== undefined && training !== null && query.data !== last?.plan) {
    setLast({ training, plan: query.data });
  }
  const isSettled = wanted === settled;
  const error = query.error instanceof ApiError ? query.error : null;
  return {
    plan: last !== null && last.training === training ? last.plan : null,
    isFresh: isSettled && query.data !== undefined,
    isBusy: wanted !== null && (!isSettled || query.isFetching),
    error: isSettled ? error : null,
    retry: () => void query.refetch(),
  };
}

/** What is trained, without the limits: plans of the same training can be compared. */
function trainingOf(request: string): string {
  const { infrastructure: _, ...training } = JSON.parse(request);
  return JSON.stringify(training);
}

function useSettled(value: string | null): string | null {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), SETTLE_MS);
    return () => clearTimeout(timer);
  }, [value]);
  return settled;
}

/** Every option of a plan, the chosen one first. */
export function optionsOf(plan: StoredPlan): PlanOption[] {
  return [...plan.plan.options, ...plan.plan.alternatives];
}

interface Judging {
  limits: Limits;
  refused: Verdict | null; // limits that the API refused, so that no option keeps them
  now: number;
}

/** Whether nine in ten such jobs keep the limits. */
export function verdictOf(option: PlanOption, { limits, refused, now }: Judging): Verdict {
  if (refused !== null && !(refused.budget && refused.deadline)) return refused;
  return {
    budget: limits.budget === null || Number(option.budget_needed) <= limits.budget,
    deadline: limits.deadline === null || option.seconds_needed <= limits.deadline - now,
  };
}

export function keeps(verdict: Verdict): boolean {
  return verdict.budget && verdict.deadline;
}

/** `1 × ND96amsr A100 v4`. */
export function machinesOf(option: { nodes: number; vm_size: string }): string {
  return `${option.nodes} × ${option.vm_size.replace(/^Standard_/, "").replaceAll("_", " ")}`;
}

export function capacityOf(option: { capacity_type: string }): string {
  return option.capacity_type === "spot" ? "Spot" : "On demand";
}
