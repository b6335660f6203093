import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, body } from "../../api/client";
import { jobQuery } from "../../api/queries";
import { Button } from "../../components/button";
import { Confirm } from "../../components/dialog";
import { Field } from "../../components/field";
import { money } from "../../format";
import { isOver, type Job } from "./use-live-job";

/** Pause, resume, cancel and change limits; each says first what it costs. */
export function Actions({ job }: { job: Job }) {
  const client = useQueryClient();
  const params = { params: { path: { job_id: job.id } } };

  async function apply(answer: Promise<{ data?: Job }>) {
    client.setQueryData(jobQuery(job.id).queryKey, await body(answer));
  }

  if (isOver(job)) return null;
  const paused = job.phase === "paused";
  const left = Math.max(0, Number(job.cost.forecast_total) - Number(job.cost.spent));
  return (
    <div className="row">
      <ChangeLimits job={job} apply={apply} />
      {paused ? (
        <Confirm
          trigger={<Button kind="primary">Resume</Button>}
          title="Resume the job?"
          action="Resume"
          onConfirm={() => apply(api.POST("/v1/fine_tuning/jobs/{job_id}/resume", params))}
        >
          <p>
            It continues from {checkpoint(job)}. Until the end it costs about {money(left)} more.
          </p>
        </Confirm>
      ) : (
        <Confirm
          trigger={<Button>Pause</Button>}
          title="Pause the job?"
          action="Pause"
          onConfirm={() => apply(api.POST("/v1/fine_tuning/jobs/{job_id}/pause", params))}
        >
          <p>
            It saves a checkpoint and gives its machines back. While it is paused it costs{" "}
            {money(job.cost.storage_a_month)} a month for storage. Starting again takes some minutes
            of machine time.
          </p>
        </Confirm>
      )}
      <Confirm
        trigger={<Button kind="danger">Cancel</Button>}
        title="Cancel the job for good?"
        action="Cancel the job"
        danger
        onConfirm={() => apply(api.POST("/v1/fine_tuning/jobs/{job_id}/cancel", params))}
      >
        <p>
          {money(job.cost.spent)} is spent; about {money(left)} is not spent. A cancelled job cannot
          be resumed. Its committed checkpoints stay.
        </p>
      </Confirm>
    </div>
  );
}

function checkpoint(job: Job): string {
  const latest = job.latest_checkpoint;
  return latest === null ? "the beginning" : `the checkpoint at step ${latest.step_number}`;
}

interface ChangeProps {
  job: Job;
  apply: (answer: Promise<{ data?: Job }>) => Promise<void>;
}

function ChangeLimits({ job, apply }: ChangeProps) {
  const { budget, deadline } = job.infrastructure;
  const [typed, setTyped] = useState<{ amount?: string; until?: string }>({});
  const amount = typed.amount ?? budget?.amount ?? "";
  const until = typed.until ?? (deadline === null ? "" : local(deadline));
  const high = Number(job.cost.forecast_high);
  const short = amount !== "" && Number(amount) < high;

  /** Send only what was typed: the other limit may have been changed elsewhere. */
  async function patch() {
    const infrastructure = {
      ...(typed.amount !== undefined && {
        budget: amount === "" ? null : { ...budget, amount, currency: "USD" as const },
      }),
      ...(typed.until !== undefined && {
        deadline: until === "" ? null : Math.round(new Date(until).getTime() / 1000),
      }),
    };
    if (Object.keys(infrastructure).length === 0) return;
    await apply(
      api.PATCH("/v1/fine_tuning/jobs/{job_id}", {
        params: { path: { job_id: job.id } },
        body: { infrastructure } as never,
      }),
    );
  }

  return (
    <Confirm
      trigger={<Button>Change limits</Button>}
      title="Change limits"
      action="Save"
      onOpen={() => setTyped({})}
      onConfirm={patch}
    >
      <p>
        Spent {money(job.cost.spent)}. Forecast {money(job.cost.forecast_total)}, 9 in 10 at most{" "}
        {money(high)}.
      </p>
      <Field
        label="Budget"
        unit="USD"
        hint={
          short
            ? "Below what 9 in 10 such jobs need: the job may stop before its end."
            : "Empty: no budget."
        }
      >
        <input
          inputMode="decimal"
          value={amount}
          onChange={(event) => setTyped({ ...typed, amount: event.target.value })}
        />
      </Field>
      <Field label="Deadline" hint="Empty: no deadline.">
        <input
          type="datetime-local"
          value={until}
          onChange={(event) => setTyped({ ...typed, until: event.target.value })}
        />
      </Field>
    </Confirm>
  );
}

/** Unix seconds as a `datetime-local` input has them. */
function local(at: number): string {
  const date = new Date(at * 1000);
  return new Date(at * 1000 - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
