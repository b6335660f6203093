/** Create one job for one filled form, however often it is sent. */

import { ApiError, api, body, type Schemas } from "../../api/client";
import type { JobRequest } from "./request";

interface Sent {
  form: string; // the request without its plan
  key: string;
  request: JobRequest;
}

const STORED = "rekindle.new.sent";

/**
 * Create the job. A form whose answer was lost is sent again with the same key and the same body,
 * also after a reload of the page, so that it makes no second job.
 */
export async function createJob(form: JobRequest, planId: string | null): Promise<Schemas["Job"]> {
  const sent = sentBefore(form) ?? remember(form, planId);
  try {
    const created = await body(
      api.POST("/v1/fine_tuning/jobs", {
        params: { header: { "idempotency-key": sent.key } },
        body: sent.request,
      }),
    );
    sessionStorage.removeItem(STORED);
    return created as Schemas["Job"];
  } catch (error) {
    const isRefused = error instanceof ApiError && error.status >= 400 && error.status < 500;
    if (isRefused) sessionStorage.removeItem(STORED);
    throw error;
  }
}

function sentBefore(form: JobRequest): Sent | null {
  const text = sessionStorage.getItem(STORED);
  if (text === null) return null;
  const sent = JSON.parse(text) as Sent;
  return sent.form === JSON.stringify(form) ? sent : null;
}

function remember(form: JobRequest, planId: string | null): Sent {
  const request = planId === null ? form : { ...form, plan: planId };
  const sent = { form: JSON.stringify(form), key: randomKey(), request };
  sessionStorage.setItem(STORED, JSON.stringify(sent));
  return sent;
}

/** 128 random bits; `crypto.randomUUID` is missing on pages without TLS. */
function randomKey(): string {
  const bits = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bits, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
