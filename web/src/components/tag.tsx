import { words } from "../format";
import styles from "./tag.module.css";

/** The colour of a phase, state or outcome; the word beside it says the same. */
const COLORS: Record<string, string> = {
  training: "training",
  saving: "saving",
  loading: "loading",
  booting: "booting",
  provisioning: "requested",
  recovering: "lost",
  migrating: "lost",
  queued: "warn",
  waiting_capacity: "warn",
  validating: "muted",
  pausing: "muted",
  paused: "muted",
  cancelling: "muted",
  stopping: "muted",
  done: "good",
  succeeded: "good",
  failed: "bad",
  cancelled: "muted",
  evicted: "lost",
  no_capacity: "warn",
  trainer_error: "bad",
  unresponsive: "bad",
  over_budget: "warn",
  healthy: "good",
  running: "training",
  starting: "booting",
  terminating: "muted",
  ended: "muted",
};

const NAMES: Record<string, string> = {
  waiting_capacity: "Waiting for capacity",
  provisioning: "Requesting machines",
};

export function Tag({ state, label }: { state: string; label?: string }) {
  const color = COLORS[state] ?? "muted";
  return (
    <span className={styles.tag} style={{ "--c": `var(--${color})` } as React.CSSProperties}>
      {label ?? NAMES[state] ?? words(state)}
    </span>
  );
}

/** The one word for a job: its phase, or how it ended. */
export function JobTag({ job }: { job: { phase: string; status: string } }) {
  return <Tag state={job.phase === "done" ? job.status : job.phase} />;
}
