import type { ReactNode } from "react";
import { Facts, Panel } from "../../components/panel";
import { Ago, At, useNow } from "../../components/time";
import { compact, decimal, duration, integer, percent } from "../../format";
import styles from "./job-page.module.css";
import { isOver, type Job, loraOf } from "./use-live-job";

/** How far the training is, when it ends, and what the last step measured. */
export function ProgressPanel({ job, children }: { job: Job; children?: ReactNode }) {
  const { progress } = job;
  const facts = [
    {
      value: `${integer(progress.step)} / ${integer(progress.total_steps)}`,
      label: `steps, ${Math.floor(progress.percent)} %`,
    },
    ...timeLeft(job, useNow()),
    ...quality(job),
    {
      value: progress.tokens_per_second === null ? "–" : compact(progress.tokens_per_second),
      label: "tokens/s",
    },
  ];
  return (
    <Panel span={8}>
      <Facts facts={facts} />
      <div
        className={styles.bar}
        role="progressbar"
        aria-label="Training steps"
        aria-valuemin={0}
        aria-valuemax={progress.total_steps}
        aria-valuenow={progress.step}
      >
        <i style={{ width: `${progress.percent}%` }} />
      </div>
      <Checkpoints job={job} />
      <p className={`muted ${styles.note}`}>
        {described(job)} {children}
      </p>
    </Panel>
  );
}

function timeLeft(job: Job, now: number) {
  if (isOver(job)) {
    const took = (job.finished_at ?? job.updated_at) - job.created_at;
    return [{ value: duration(took), label: "from the request to the end" }];
  }
  const finish = job.forecast?.finish;
  if (finish == null) return [{ value: "–", label: job.forecast?.unknown_because ?? "time left" }];
  const latest = `9 in 10 within ${duration(finish.p90 - now)}`;
  return [{ value: duration(finish.p50 - now), label: `left, ${latest}` }];
}

function quality({ progress, method }: Job) {
  if (method.type === "reinforcement")
    return [{ value: decimal(progress.reward), label: "reward" }];
  const validated = progress.valid_loss !== null;
  return [
    {
      value: decimal(validated ? progress.valid_loss : progress.loss),
      label: validated ? `validation loss, training ${decimal(progress.loss)}` : "training loss",
    },
  ];
}

function Checkpoints({ job }: { job: Job }) {
  const { latest_checkpoint: latest, forecast, infrastructure } = job;
  const every = job.checkpoint_interval.seconds;
  return (
    <p className={`muted ${styles.note}`}>
      {latest === null ? (
        "No checkpoint yet."
      ) : (
        <>
          Checkpoint at step {integer(latest.step_number)}, <Ago at={latest.created_at} />.
        </>
      )}
      {!isOver(job) && every !== null && (
        <>
          {" "}
          One every {duration(every)}, chosen by the {job.checkpoint_interval.chosen_by}.
        </>
      )}
      {infrastructure.deadline !== null && (
        <>
          {" "}
          Deadline <At at={infrastructure.deadline} />
          {forecast?.meets_deadline == null
            ? "."
            : `: met with ${percent(forecast.meets_deadline)} probability.`}
        </>
      )}
      {job.progress.lost_steps > 0 && (
        <> {integer(job.progress.lost_steps)} steps repeated after evictions.</>
      )}
    </p>
  );
}

function described(job: Job): string {
  const recipe = job.plan.recipe;
  const lora = loraOf(job);
  const how = lora === null ? "full fine-tuning" : `LoRA rank ${lora.rank}`;
  const passes =
    job.hyperparameters.n_epochs === 1 ? "1 epoch" : `${job.hyperparameters.n_epochs} epochs`;
  return `${job.model}, ${job.method.type}, ${how}, ${passes}, batch ${recipe.global_batch}, seed ${job.seed}.`;
}
