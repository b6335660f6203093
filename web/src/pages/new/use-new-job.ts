/** The state of the form: its draft, the request that it makes, and the errors at its fields. */

import { useState } from "react";
import { ApiError, type Schemas } from "../../api/client";
import { type Draft, EMPTY, type FieldErrors, storeDraft, storedDraft } from "./draft";
import type { Form } from "./form";
import type { Limits, Verdict } from "./plan";
import { fieldOf, type JobRequest, requestOf } from "./request";
import { createJob } from "./submission";

export interface NewJob {
  draft: Draft;
  isEmpty: boolean;
  request: JobRequest | null;
  missing: string | null; // what is to be done before there is a request
  limits: Limits;
  change: (changed: Partial<Draft>) => void;
  changeLimits: (limits: Partial<Limits>) => void;
  replace: (draft: Draft | null) => void;
  refused: (planError: ApiError | null) => Verdict | null;
  withErrors: (planError: ApiError | null) => Form & { general: unknown };
  submit: (planId: string | null) => Promise<Schemas["Job"] | null>;
}

export function useNewJob(): NewJob {
  const [draft, setDraft] = useState(storedDraft);
  const [failure, setFailure] = useState<unknown>(null);
  const [wasSent, setWasSent] = useState(false);
  const made = requestOf(draft);
  const faults = "errors" in made ? made.errors : {};

  function set(next: Draft | null) {
    storeDraft(next);
    setDraft(next ?? EMPTY);
    setFailure(null);
  }

  async function submit(planId: string | null) {
    setWasSent(true);
    if (!("request" in made)) return null;
    try {
      const created = await createJob(made.request, planId);
      storeDraft(null);
      return created;
    } catch (error) {
      setFailure(error);
      return null;
    }
  }

  return {
    draft,
    isEmpty: JSON.stringify(draft) === JSON.stringify(EMPTY),
    request: "request" in made ? made.request : null,
    missing: Object.values(faults)[0] ?? null,
    limits: {
      budget: Number(draft.budget) > 0 ? Number(draft.budget) : null,
      deadline: draft.deadline,
    },
    change: (changed) => set({ ...draft, ...changed }),
    changeLimits: ({ budget, deadline }) =>
      set({
        ...draft,
        budget: budget === undefined ? draft.budget : budget === null ? "" : budget.toFixed(2),
        deadline: deadline === undefined ? draft.deadline : deadline,
      }),
    replace: (next) => {
      setWasSent(false);
      set(next);
    },
    refused: (planError) => refusedLimits(planError, draft),
    withErrors: (planError) => {
      const errors = { ...shownFaults(faults, wasSent), ...errorAt(planError, draft) };
      const sent = errorAt(failure, draft);
      const general = failure !== null && Object.keys(sent).length === 0 ? failure : null;
      return {
        draft,
        errors: { ...errors, ...sent },
        general,
        change: (c) => set({ ...draft, ...c }),
      };
    },
    submit,
  };
}

/** What is missing is said once the form was sent; what is wrong, at once. */
function shownFaults(faults: FieldErrors, wasSent: boolean): FieldErrors {
  return wasSent ? faults : { advanced: faults.advanced, grader: faults.grader };
}

function errorAt(error: unknown, draft: Draft): FieldErrors {
  if (!(error instanceof ApiError)) return {};
  const field = fieldOf(error.param, draft);
  return field === null ? {} : { [field]: error.message };
}

/** Of limits that the API refused: which of them no option keeps. */
function refusedLimits(error: ApiError | null, draft: Draft): Verdict | null {
  const field = fieldOf(error?.param ?? null, draft);
  if (field !== "budget" && field !== "deadline") return null;
  return { budget: field !== "budget", deadline: field !== "deadline" };
}
