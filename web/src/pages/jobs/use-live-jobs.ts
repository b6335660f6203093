import {
  type InfiniteData,
  type Query,
  type QueryClient,
  useQueryClient,
} from "@tanstack/react-query";
import { useEffect, useState } from "react";
import type { Schemas } from "../../api/client";
import { type LiveState, subscribe } from "../../api/live";
import { summaryQuery } from "../../api/queries";
import type { JobsSearch } from "../../search";

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
        onData: (data, kind) => {
          if (kind === "job") take(client, data as JobSummary);
          else if (!resumed(data)) void client.invalidateQueries({ queryKey: ["jobs"] });
          void client.invalidateQueries({ queryKey: summaryQuery.queryKey });
        },
      }),
    [client],
  );
  return live;
}

/** True when the stream goes on where it broke; otherwise changes may have been missed. */
function resumed(ready: unknown): boolean {
  return (ready as { resumed: boolean }).resumed;
}

/** Put the job into every list that shows it; read those again where it may appear or go. */
export function take(client: QueryClient, job: JobSummary): void {
  let before: JobSummary | undefined;
  client.setQueriesData<Pages>({ queryKey: ["jobs"] }, (pages) => {
    before ??= pages?.pages.flatMap(({ data }) => data).find(({ id }) => id === job.id);
    return pages && replace(pages, job);
  });
  if (before === undefined) void client.invalidateQueries({ queryKey: ["jobs"] });
  else if (before.phase !== job.phase) {
    const isFiltered = ({ queryKey }: Query) => (queryKey[1] as JobsSearch).phase !== undefined;
    void client.invalidateQueries({ queryKey: ["jobs"], predicate: isFiltered });
  }
}

/** The pages with this job in place of an older version; the same object where it is in none. */
export function replace(pages: Pages, job: JobSummary): Pages {
  const at = pages.pages.findIndex(({ data }) => data.some(({ id }) => id === job.id));
  if (at === -1) return pages;
  const newer = (one: JobSummary) =>
    one.id === job.id && one.version < job.version ? { ...one, ...job } : one;
  const changed = pages.pages.map((page, number) =>
    number === at ? { ...page, data: page.data.map(newer) } : page,
  );
  return { ...pages, pages: changed };
}
