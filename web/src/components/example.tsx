import styles from "./example.module.css";

/** One row of a file, as the API's preview shows it. */
export interface PreviewRow {
  line: number;
  examples: {
    part: string;
    tokens: number;
    kept_tokens: number;
    trained_tokens: number;
    segments: { kind: "context" | "trained" | string; text: string }[];
  }[];
  problems: (string | { message?: string })[];
}

/** A row as the model reads it: trained text stands out, and problems name the line. */
export function Example({ row }: { row: PreviewRow }) {
  return (
    <article className={styles.row} aria-label={`Line ${row.line}`}>
      <span className={styles.line}>{row.line}</span>
      <div className={styles.examples}>
        {row.problems.map((problem) => {
          const text = typeof problem === "string" ? problem : (problem.message ?? "");
          return (
            <p key={text} className="bad">
              Line {row.line}: {text}
            </p>
          );
        })}
        {row.examples.map((example) => (
          <div key={example.part}>
            <p className={styles.text}>
              {example.segments.map((segment, at) => (
                <span
                  // biome-ignore lint/suspicious/noArrayIndexKey: segments have no other name
                  key={at}
                  className={segment.kind === "trained" ? styles.trained : styles.context}
                >
                  {segment.text}
                </span>
              ))}
            </p>
            <p className="small muted">
              {row.examples.length > 1 && `${example.part}: `}
              {example.tokens} tokens, {example.trained_tokens} trained
              {example.kept_tokens < example.tokens && `, cut after ${example.kept_tokens}`}
            </p>
          </div>
        ))}
      </div>
    </article>
  );
}
