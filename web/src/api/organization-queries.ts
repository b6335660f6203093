/** What the pages about models, costs, keys and the whole service ask the API. */

import { queryOptions } from "@tanstack/react-query";
import { api, body } from "./client";
import { PAGE, pagesQuery } from "./pages";

export const jobsFromQuery = (model: string) =>
  pagesQuery(["jobs", "from", model], ({ after }) =>
    body(
      api.GET("/v1/fine_tuning/jobs", { params: { query: { search: model, limit: PAGE, after } } }),
    ),
  );

export const modelCardQuery = (jobId: string) =>
  queryOptions({
    queryKey: ["job", jobId, "card"],
    queryFn: async () =>
      String(
        await body(
          api.GET("/v1/fine_tuning/jobs/{job_id}/model/{name}", {
            params: { path: { job_id: jobId, name: "README.md" } },
            parseAs: "text",
          }),
        ),
      ),
  });

export const costsQuery = (days: number) =>
  queryOptions({
    queryKey: ["costs", days],
    queryFn: () => body(api.GET("/v1/organization/costs", { params: { query: { days } } })),
  });

export const projectCostsQuery = (days: number) =>
  pagesQuery(["costs", "projects", days], (start) =>
    body(
      api.GET("/v1/organization/costs/projects", {
        params: { query: { days, limit: PAGE, ...start } },
      }),
    ),
  );

export const reconciliationQuery = (days: number) =>
  pagesQuery(["costs", "reconciliation", days], async ({ after }) => {
    const query = { days, limit: PAGE, after };
    const {
      attempts,
      until: _,
      ...answer
    } = await body(api.GET("/v1/organization/costs/reconciliation", { params: { query } }));
    return { ...answer, data: attempts, last_id: attempts.at(-1)?.id ?? null };
  });

export const keysQuery = pagesQuery(["keys"], ({ after }) =>
  body(api.GET("/v1/api_keys", { params: { query: { limit: PAGE, after } } })),
);

export const projectsQuery = pagesQuery(["projects"], ({ after }) =>
  body(api.GET("/v1/organization/projects", { params: { query: { limit: PAGE, after } } })),
);

export const AUDIT_PAGE = 1_000; // each page asks Azure for everything anew

export const auditQuery = pagesQuery(["audit"], ({ after }) =>
  body(api.GET("/v1/organization/audit", { params: { query: { limit: AUDIT_PAGE, after } } })),
);

export const fleetQuery = queryOptions({
  queryKey: ["fleet"],
  queryFn: () => body(api.GET("/v1/organization/fleet", {})),
  refetchInterval: 10_000,
});

export const systemQuery = queryOptions({
  queryKey: ["system"],
  queryFn: () => body(api.GET("/v1/organization/system", {})),
  refetchInterval: 10_000,
});

export const pricesQuery = (days: number) =>
  queryOptions({
    queryKey: ["prices", days],
    queryFn: () => body(api.GET("/v1/organization/prices", { params: { query: { days } } })),
  });

/** Seconds between two counts, so that a range has no more counts than the API gives. */
const gapOf = (days: number) => (days > 30 ? 900 : 300);

/** The counts of one place, `SIZE@REGION`; null where no job ever had machines there. */
export const traceQuery = (place: string, days: number) =>
  queryOptions({
    queryKey: ["trace", place, days],
    queryFn: async () => {
      let page: { after?: string; until?: number } = {};
      for (;;) {
        const query = { days, gap_seconds: gapOf(days), ...page };
        const answer = await body(api.GET("/v1/organization/traces", { params: { query } }));
        const found = answer.data.find(({ id }) => id === place);
        if (found !== undefined) return found;
        if (!answer.has_more || answer.last_id === null) return null;
        page = { after: answer.last_id, until: answer.until };
      }
    },
  });
