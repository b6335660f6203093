import { integer } from "../../format";
import type { Job } from "./use-live-job";

interface Facts {
  rows: number;
  tokens: number;
  trained_tokens: number;
  longest: number;
}

/** How large the training file is, in rows and tokens. */
export function DataFacts({ job }: { job: Job }) {
  const data = job.plan.data as Facts | null | undefined;
  return (
    <p className="row">
      <code>{job.training_file}</code>
      {data != null && (
        <span className="muted">
          {integer(data.rows)} rows, {integer(data.tokens)} tokens, of which{" "}
          {integer(data.trained_tokens)} are trained; the longest row has {integer(data.longest)}.
        </span>
      )}
    </p>
  );
}
