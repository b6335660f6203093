import { Button } from "../../components/button";
import { ErrorBox } from "../../components/states";
import { duration, money } from "../../format";
import styles from "./new.module.css";
import type { PlanState } from "./plan";

interface SubmitBarProps {
  plan: PlanState;
  error: unknown; // of no field
  busy: boolean;
}

/** The button that creates the job, always in sight, with what the job will cost. */
export function SubmitBar({ plan, error, busy }: SubmitBarProps) {
  const chosen = plan.plan !== null && plan.error === null ? plan.plan.chosen : null;
  return (
    <div className={styles.submit}>
      {error !== null && <ErrorBox error={error} />}
      <div className="row">
        <p className="grow num">
          {chosen === null ? (
            <span className="muted">The plan shows here what the job will cost.</span>
          ) : (
            <>
              About <strong>{money(chosen.cost_p50)}</strong> and{" "}
              <strong>{duration(chosen.duration_p50)}</strong>
              <span className="muted">
                {" "}
                · nine in ten at most {money(chosen.cost_p90)} and {duration(chosen.duration_p90)}
              </span>
            </>
          )}
        </p>
        <Button kind="primary" type="submit" disabled={busy}>
          {busy ? "Creating" : "Create job"}
        </Button>
      </div>
    </div>
  );
}
