import type { ReactNode } from "react";
import styles from "./panel.module.css";

interface PanelProps {
  title?: ReactNode;
  aside?: ReactNode; // beside the title, for example a legend
  span?: 4 | 6 | 8 | 12;
  children: ReactNode;
}

/** A box with thin lines; `span` columns of 12 within `.grid`. */
export function Panel({ title, aside, span = 12, children }: PanelProps) {
  return (
    <section className={`${styles.panel} span-${span}`}>
      {(title !== undefined || aside !== undefined) && (
        <header className={styles.head}>
          {title !== undefined && <h2>{title}</h2>}
          {aside}
        </header>
      )}
      {children}
    </section>
  );
}

/** Figures side by side: a large value and what it is. */
export function Facts({ facts }: { facts: readonly { value: ReactNode; label: ReactNode }[] }) {
  return (
    <dl className={styles.facts}>
      {facts.map(({ value, label }, at) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the figures keep their places
        <div key={at}>
          <dd>{value}</dd>
          <dt>{label}</dt>
        </div>
      ))}
    </dl>
  );
}
