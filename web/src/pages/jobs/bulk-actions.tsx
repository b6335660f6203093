import { useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { api, type Schemas } from "../../api/client";
import { Button, buttonClass } from "../../components/button";
import { Confirm } from "../../components/dialog";
import { money } from "../../format";
import styles from "./jobs-page.module.css";

type JobSummary = Schemas["JobSummary"];
type Action = "pause" | "cancel";

const AT_ONCE = 6; // requests; a browser opens no more connections to one host
const MOST_COMPARED = 8;
const OVER = ["succeeded", "failed", "cancelled"];

/** What can be done with the selected jobs. */
export function BulkActions({ jobs, done }: { jobs: JobSummary[]; done: () => void }) {
  const client = useQueryClient();
  const live = jobs.filter(({ status }) => !OVER.includes(status));
  const going = live.filter(({ phase }) => phase !== "paused" && phase !== "pausing");
  const spent = live.reduce((sum, { cost }) => sum + Number(cost.spent), 0);

  async function apply(action: Action, chosen: JobSummary[]) {
    const failed = await sendAll(
      action,
      chosen.map(({ id }) => id),
    );
    await client.invalidateQueries({ queryKey: ["jobs"] });
    const first = failed[0];
    if (first !== undefined) {
      throw new Error(`${failed.length} of ${chosen.length} failed. The first: ${first.message}`);
    }
    done();
  }

  if (jobs.length === 0) return <div className={styles.bulk} />;
  return (
    <fieldset className={styles.bulk} aria-label="Selected jobs">
      <span>{jobs.length} selected</span>
      <Confirm
        trigger={<Button disabled={going.length === 0}>Pause</Button>}
        title={`Pause ${count(going.length)}?`}
        action="Pause"
        onConfirm={() => apply("pause", going)}
      >
        <p>Each saves a checkpoint and gives its machines back. Resume each when you want.</p>
      </Confirm>
      <Confirm
        trigger={
          <Button kind="danger" disabled={live.length === 0}>
            Cancel
          </Button>
        }
        title={`Cancel ${count(live.length)} for good?`}
        action={`Cancel ${count(live.length)}`}
        danger
        onConfirm={() => apply("cancel", live)}
      >
        <p>
          {money(spent)} is spent on them. A cancelled job cannot be resumed; its committed
          checkpoints stay.
        </p>
      </Confirm>
      {jobs.length > 1 && jobs.length <= MOST_COMPARED && (
        <Link to="/compare" search={{ jobs: jobs.map(({ id }) => id) }} className={buttonClass()}>
          Compare
        </Link>
      )}
      <Button onClick={done}>Clear</Button>
    </fieldset>
  );
}

function count(jobs: number): string {
  return jobs === 1 ? "1 job" : `${jobs} jobs`;
}

/** Send the action for every job, some at a time; returns the errors. */
async function sendAll(action: Action, ids: string[]): Promise<Error[]> {
  const waiting = [...ids];
  const failed: Error[] = [];
  async function work() {
    for (let id = waiting.shift(); id !== undefined; id = waiting.shift()) {
      const params = { params: { path: { job_id: id } } };
      await api
        .POST(`/v1/fine_tuning/jobs/{job_id}/${action}`, params)
        .catch((error: Error) => failed.push(error));
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return failed;
}
