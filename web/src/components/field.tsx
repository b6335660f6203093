import { cloneElement, type ReactElement, type ReactNode, useId } from "react";
import styles from "./field.module.css";

interface FieldProps {
  label: string;
  hint?: ReactNode;
  error?: string;
  unit?: string;
  children: ReactElement<{ id?: string; "aria-describedby"?: string; "aria-invalid"?: boolean }>;
}

/** A labelled input with a hint and an error below it. */
export function Field({ label, hint, error, unit, children }: FieldProps) {
  const id = useId();
  const below = error ?? hint;
  return (
    <div className={styles.field}>
      <label htmlFor={id}>{label}</label>
      <span className={styles.input}>
        {cloneElement(children, {
          id,
          "aria-describedby": below === undefined ? undefined : `${id}-below`,
          "aria-invalid": error !== undefined,
        })}
        {unit !== undefined && <span className="muted">{unit}</span>}
      </span>
      {below !== undefined && (
        <p
          id={`${id}-below`}
          className={error === undefined ? styles.hint : styles.error}
          role={error === undefined ? undefined : "alert"}
        >
          {below}
        </p>
      )}
    </div>
  );
}
