import { type InfiniteData, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import type { Schemas } from "../../api/client";
import { type LiveState, subscribe } from "../../api/live";
import { summaryQuery } from "../../api/queries";

type JobList = Schemas["JobList"];
type JobSummary = Schemas["JobSummary"];
type Pages = InfiniteData<JobList, string | undefined>;

/** Keep every list of jobs fresh: a changed job replaces its row, a new one reads the list again. */
export function useLiveJobs(): LiveState {
  const client = useQueryClient();
  const [live, setLive] = useState<LiveState>("connecting");

  useEffect(
    () =>
      subscribe({
        path: "/v1/fine_tuning/jobs/stream",
        onState: setLive,
        onData: (data) => {
          const job = data as JobSummary;
          let known = false;
          client.setQueriesData<Pages>({ queryKey: ["jobs"] }, (pages) => {
            const replaced = pages && replace(pages, job);
            known ||= replaced !== pages;
            return replaced;
          });
          if (!known) void client.invalidateQueries({ queryKey: ["jobs"] });
          void client.invalidateQueries({ queryKey: summaryQuery.queryKey });
        },
      }),
    [client],
  );
  return live;
}

/** The pages with this job in place of its older self; the same object where it is in none. */
export function replace(pages: Pages, job: JobSummary): Pages {
  const at = pages.pages.findIndex(({ data }) => data.some(({ id }) => id === job.id));
  if (at === -1) return pages;
  const changed = pages.pages.map((page, number) =>
    number === at
      ? { ...page, data: page.data.map((one) => (one.id === job.id ? { ...one, ...job } : one)) }
      : page,
  );
  return { ...pages, pages: changed };
}
