/** What a page shows while it loads, when it fails, and when there is nothing. */

import type { ReactNode } from "react";
import { ApiError } from "../api/client";
import { Button } from "./button";
import styles from "./states.module.css";

/** Grey lines of about the size of what comes, so that nothing moves when it is there. */
export function Loading({ lines = 4, label = "Loading" }: { lines?: number; label?: string }) {
  return (
    <div className={styles.loading} role="status" aria-label={label}>
      {Array.from({ length: lines }, (_, line) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the lines are all alike
        <i key={line} />
      ))}
    </div>
  );
}

export function ErrorBox({ error, retry }: { error: unknown; retry?: () => void }) {
  const message = error instanceof Error ? error.message : String(error);
  const code = error instanceof ApiError ? error.code : null;
  return (
    <div className={styles.error} role="alert">
      <p>{message}</p>
      {code !== null && <p className="small muted">Code: {code}</p>}
      {retry !== undefined && <Button onClick={retry}>Retry</Button>}
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className={styles.empty}>
      <h3>{title}</h3>
      {children}
    </div>
  );
}
