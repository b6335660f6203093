/** What the pages ask the API, by key: TanStack Query shares and refreshes the answers. */

import { QueryClient, queryOptions } from "@tanstack/react-query";
import type { JobsSearch } from "../search";
import { ApiError, api, body, type Schemas } from "./client";
import { PAGE, pagesQuery } from "./pages";

type MetricList = Schemas["MetricList"];

export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 2_000,
      // An answer below 500 says that asking again does not help.
      retry: (failures, error) =>
        failures < 3 && !(error instanceof ApiError && error.status >= 400 && error.status < 500),
    },
  },
});

export const POLL_MS = 5_000; // where no stream is open

export const jobsQuery = ({ search, phase, sort, order }: JobsSearch) =>
  pagesQuery(["jobs", { search, phase, sort, order }], ({ after }) =>
    body(
      api.GET("/v1/fine_tuning/jobs", {
        params: { query: { search, phase, sort, order, limit: PAGE, after } },
      }),
    ),
  );

export const summaryQuery = queryOptions({
  queryKey: ["summary"],
  queryFn: () => body(api.GET("/v1/fine_tuning/summary", {})),
  refetchInterval: 10_000,
});

export const jobQuery = (jobId: string) =>
  queryOptions({
    queryKey: ["job", jobId],
    queryFn: () => body(api.GET("/v1/fine_tuning/jobs/{job_id}", path(jobId))),
  });

export const attemptsQuery = (jobId: string) =>
  queryOptions({
    queryKey: ["job", jobId, "attempts"],
    queryFn: () => body(api.GET("/v1/fine_tuning/jobs/{job_id}/attempts", path(jobId))),
  });

export const eventsQuery = (jobId: string) =>
  queryOptions({
    queryKey: ["job", jobId, "events"],
    refetchInterval: 30_000, // some events come without a change that the page sees
    queryFn: () =>
      body(
        api.GET("/v1/fine_tuning/jobs/{job_id}/events", {
          params: { path: { job_id: jobId }, query: { limit: PAGE } },
        }),
      ),
  });

/** Every event, newest first; the newest page alone is `eventsQuery`. */
export const allEventsQuery = (jobId: string) =>
  pagesQuery(["job", jobId, "all-events"], ({ after }) =>
    body(
      api.GET("/v1/fine_tuning/jobs/{job_id}/events", {
        params: { path: { job_id: jobId }, query: { limit: PAGE, after } },
      }),
    ),
  );

export const checkpointsQuery = (jobId: string) =>
  pagesQuery(["job", jobId, "checkpoints"], ({ after }) =>
    body(
      api.GET("/v1/fine_tuning/jobs/{job_id}/checkpoints", {
        params: { path: { job_id: jobId }, query: { limit: PAGE, after } },
      }),
    ),
  );

export const storageQuery = (jobId: string) =>
  queryOptions({
    queryKey: ["job", jobId, "storage"],
    queryFn: () => body(api.GET("/v1/fine_tuning/jobs/{job_id}/storage", path(jobId))),
  });

export const MAX_POINTS = 2_000;

/**
 * The series of a job, thinned by the service. While it trains only new steps are asked for;
 * steps that an attempt repeats have the values that they had.
 */
export const metricsQuery = (jobId: string) =>
  queryOptions({
    queryKey: ["job", jobId, "metrics"],
    queryFn: async ({ client, queryKey }) => {
      const known = client.getQueryData<MetricList>(queryKey);
      const last = known?.data.at(-1);
      if (known === undefined || last === undefined || known.data.length > 2 * MAX_POINTS) {
        return series(jobId);
      }
      const more = await series(jobId, last.step + 1);
      return { ...more, data: [...known.data, ...more.data] };
    },
  });

function series(jobId: string, fromStep?: number) {
  const query = { max_points: MAX_POINTS, from_step: fromStep };
  return body(
    api.GET("/v1/fine_tuning/jobs/{job_id}/metrics", {
      params: { path: { job_id: jobId }, query },
    }),
  );
}

export const modelsQuery = queryOptions({
  queryKey: ["models"],
  queryFn: () => body(api.GET("/v1/models", {})),
});

export const modelFilesQuery = (jobId: string) =>
  queryOptions({
    queryKey: ["job", jobId, "model"],
    queryFn: () => body(api.GET("/v1/fine_tuning/jobs/{job_id}/model", path(jobId))),
  });

function path(jobId: string) {
  return { params: { path: { job_id: jobId } } };
}
