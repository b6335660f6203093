/** Typed calls of the public API; the types are generated from openapi.json. */

import createClient, { type Middleware } from "openapi-fetch";
import type { components, paths } from "./schema";
import { storedKey, storeKey } from "./session";

export type Schemas = components["schemas"];

/** An answer that is not a success: what the API said, and what to do next. */
export class ApiError extends Error {
  override name = "ApiError";
  constructor(
    readonly status: number,
    message: string,
    readonly code: string | null = null,
    readonly param: string | null = null,
  ) {
    super(message);
  }
}

const authorize: Middleware = {
  onRequest({ request }) {
    const key = storedKey();
    if (key !== null) request.headers.set("authorization", `Bearer ${key}`);
  },
  async onResponse({ response }) {
    if (response.status === 401 && storedKey() !== null) storeKey(null);
    if (!response.ok) throw await errorOf(response);
  },
  onError({ error }) {
    return new ApiError(
      0,
      "The service did not answer. Check that it runs, then retry.",
      String(error),
    );
  },
};

export const api = createClient<paths>({ baseUrl: "/" });
api.use(authorize);

/** The body of an answer; errors were thrown before. */
export async function body<T>(answer: Promise<{ data?: T }>): Promise<T> {
  return (await answer).data as T;
}

/** The error that an answer of the API describes. */
export async function errorOf(response: Response): Promise<ApiError> {
  const told = await response.json().catch(() => null);
  const error = told?.error ?? {};
  return new ApiError(
    response.status,
    error.message ??
      `The service answered ${response.status}. Retry; if it stays, look at its log.`,
    error.code ?? null,
    error.param ?? null,
  );
}
