import { useInfiniteQuery } from "@tanstack/react-query";
import { api, body } from "../../api/client";
import { Button } from "../../components/button";
import { Example, type PreviewRow } from "../../components/example";
import { ErrorBox, Loading } from "../../components/states";
import { DataFacts } from "./data-facts";
import type { Job } from "./use-live-job";

const ROWS = 10;

/** The rows as the model reads them; what is trained is marked. */
export function DataTab({ job }: { job: Job }) {
  const rows = useInfiniteQuery({
    queryKey: ["file", job.training_file, "preview", job.model, job.method.type],
    initialPageParam: 1,
    queryFn: ({ pageParam }) =>
      body(
        api.GET("/v1/files/{file_id}/preview", {
          params: {
            path: { file_id: job.training_file },
            query: {
              model: job.model,
              method: job.method.type,
              max_seq_len: job.plan.recipe.max_seq_len,
              line: pageParam,
              limit: ROWS,
            },
          },
        }),
      ),
    getNextPageParam: (page) => page.next_line ?? undefined,
    staleTime: Number.POSITIVE_INFINITY, // a file never changes
  });
  return (
    <>
      <DataFacts job={job} />
      {rows.data === undefined &&
        (rows.error === null ? <Loading lines={8} /> : <ErrorBox error={rows.error} />)}
      {rows.data?.pages
        .flatMap((page) => page.data as unknown as PreviewRow[])
        .map((row) => (
          <Example key={row.line} row={row} />
        ))}
      {rows.hasNextPage && (
        <Button disabled={rows.isFetchingNextPage} onClick={() => void rows.fetchNextPage()}>
          {rows.isFetchingNextPage ? "Loading" : "More rows"}
        </Button>
      )}
    </>
  );
}
