/** What the check of a file found, with the lines of the file. */

import { ErrorBox } from "../../components/states";
import { integer, words } from "../../format";
import styles from "./new.module.css";
import { type Finding, RefusedFile, type StoredFile } from "./upload";

/** Why a file was not kept; the lines to correct, where it is for its rows. */
export function Refusal({ error, name }: { error: unknown; name: string }) {
  if (!(error instanceof RefusedFile)) return <ErrorBox error={error} />;
  const total = Object.values(error.counts).reduce((sum, one) => sum + one, 0);
  return (
    <div role="alert" className={styles.refusal}>
      <p>
        <strong className="bad">{name} was refused:</strong> {count(total, "line")} wrong. Correct
        the file and upload it again.
      </p>
      <FindingTable
        caption={`Wrong lines of ${name}`}
        findings={error.findings}
        shown={total > error.findings.length ? `The first ${error.findings.length} are shown.` : ""}
      />
    </div>
  );
}

/** The rows that are allowed and probably not meant. */
export function FileFindings({ file }: { file: StoredFile }) {
  const warnings = file.warnings ?? [];
  const total = file.counts?.warnings ?? warnings.length;
  if (total === 0) {
    return (
      <p className="small">
        <span className="good">Every row is well-formed.</span>{" "}
        <span className="muted">{file.format === null ? "" : `Rows: ${file.format}.`}</span>
      </p>
    );
  }
  return (
    <details className={styles.details}>
      <summary>
        <span className="warn">{count(total, "warning")}</span>
        <span className="muted"> on rows that are allowed and probably not meant</span>
      </summary>
      <FindingTable
        caption={`Warnings of ${file.filename}`}
        findings={warnings}
        shown={total > warnings.length ? "The first of each kind is shown." : ""}
      />
    </details>
  );
}

interface FindingTableProps {
  caption: string;
  findings: readonly Finding[];
  shown: string;
}

function FindingTable({ caption, findings, shown }: FindingTableProps) {
  return (
    <>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be in reach of the keyboard */}
      <section className={styles.scroll} aria-label={caption} tabIndex={0}>
        <table className={styles.table}>
          <thead>
            <tr>
              <th scope="col" className="right">
                Line
              </th>
              <th scope="col">Finding</th>
            </tr>
          </thead>
          <tbody>
            {findings.map((finding) => (
              <tr key={`${finding.line} ${finding.code} ${finding.message}`}>
                <td className="num right">{integer(finding.line)}</td>
                <td>
                  {finding.message} <span className="muted small">{words(finding.code)}</span>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </section>
      {shown !== "" && <p className="small muted">{shown}</p>}
    </>
  );
}

function count(number: number, noun: string): string {
  return `${integer(number)} ${noun}${number === 1 ? "" : "s"}`;
}
