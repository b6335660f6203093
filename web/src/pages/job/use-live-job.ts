import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import type { Schemas } from "../../api/client";
import { type LiveState, subscribe } from "../../api/live";
import { jobQuery, POLL_MS } from "../../api/queries";

export type Job = Schemas["Job"];
export type Attempt = Schemas["Attempt"];

/** The job, fresh by server-sent events; by polling where no stream can be had. */
export function useLiveJob(jobId: string) {
  const client = useQueryClient();
  const [live, setLive] = useState<LiveState>("connecting");
  const query = useQuery({
    ...jobQuery(jobId),
    refetchInterval: live === "polling" ? POLL_MS : false,
  });

  useEffect(
    () =>
      subscribe({
        path: `/v1/fine_tuning/jobs/${jobId}/stream`,
        onState: setLive,
        onData: (data) => client.setQueryData(jobQuery(jobId).queryKey, data as Job),
      }),
    [client, jobId],
  );

  // A step brings new rows of metrics; the rest is read again when the job gets somewhere new,
  // so that an open page costs the service little.
  const job = query.data;
  const step = job?.progress.step;
  const milestone = job && [job.phase, job.attempts.current, job.latest_checkpoint?.id].join();
  useEffect(() => {
    if (step !== undefined) void client.invalidateQueries({ queryKey: ["job", jobId, "metrics"] });
  }, [client, jobId, step]);
  useEffect(() => {
    if (milestone === undefined) return;
    void client.invalidateQueries({
      queryKey: ["job", jobId],
      predicate: ({ queryKey }) => queryKey.length > 2 && queryKey[2] !== "metrics",
    });
  }, [client, jobId, milestone]);

  return { ...query, live };
}

export function isOver(job: { status: string }): boolean {
  return ["succeeded", "failed", "cancelled"].includes(job.status);
}

/** The name that people know the job by. */
export function nameOf(job: { user_provided_suffix: string | null; id: string }): string {
  return job.user_provided_suffix ?? job.id;
}

interface Lora {
  rank: number;
  alpha: number;
  dropout: number;
  quantized?: boolean;
}

/** The adapters that the job trains; null where it trains every parameter. */
export function loraOf(job: Job): Lora | null {
  return (job.plan.recipe.lora as Lora | null | undefined) ?? null;
}
