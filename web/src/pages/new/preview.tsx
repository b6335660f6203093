/** Rows of the training file as the model reads them, as chats, with what is trained marked. */

import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, body } from "../../api/client";
import { Button } from "../../components/button";
import { Panel } from "../../components/panel";
import { Empty, ErrorBox, Loading } from "../../components/states";
import { integer, words } from "../../format";
import type { Method } from "./draft";
import styles from "./new.module.css";
import { type Segment, turnsOf } from "./turns";

interface Example {
  part: string;
  label?: string;
  tokens: number;
  kept_tokens: number;
  trained_tokens: number;
  segments: Segment[];
}

interface Row {
  line: number;
  examples: Example[];
  problems: { code: string; message: string; is_error: boolean }[];
}

interface PreviewProps {
  fileId: string | null;
  model: string;
  method: Method;
  maxSeqLen: number | undefined;
  examples: number | null | undefined; // rows of the file
}

const ROWS = 5;

export function Preview({ fileId, model, method, maxSeqLen, examples }: PreviewProps) {
  const [line, setLine] = useState(1);
  const [shownFile, setShownFile] = useState(fileId);
  if (shownFile !== fileId) {
    setShownFile(fileId);
    setLine(1);
  }
  const query = { model, method, max_seq_len: maxSeqLen, line, limit: ROWS };
  const rows = useQuery({
    queryKey: ["preview", fileId, query],
    queryFn: () =>
      body(
        api.GET("/v1/files/{file_id}/preview", {
          params: { path: { file_id: fileId ?? "" }, query },
        }),
      ),
    enabled: fileId !== null && model !== "",
    placeholderData: keepPreviousData,
    staleTime: 60_000,
  });

  if (fileId === null || model === "") {
    return (
      <Panel title="Preview">
        <Empty title="Rows appear here">
          <p>Choose a training file and a base model to see what the model will read.</p>
        </Empty>
      </Panel>
    );
  }
  const shown = (rows.data?.data ?? []) as unknown as Row[];
  return (
    <Panel
      title="Preview"
      aside={
        <Pages
          line={line}
          next={rows.data?.next_line ?? null}
          examples={examples}
          onLine={setLine}
        />
      }
    >
      <p className={`small muted ${styles.key}`}>
        <mark className={styles.trained}>trained</mark> <span>read only</span>{" "}
        <del className={styles.cut}>cut off</del>
      </p>
      {rows.isPending && <Loading lines={8} label="Loading the rows" />}
      {rows.error !== null && <ErrorBox error={rows.error} retry={() => void rows.refetch()} />}
      {rows.error === null && rows.data !== undefined && (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be in reach of the keyboard
        <section className={styles.rows} aria-label="Rows of the training file" tabIndex={0}>
          {shown.map((row) => (
            <RowView key={row.line} row={row} />
          ))}
        </section>
      )}
    </Panel>
  );
}

interface PagesProps {
  line: number;
  next: number | null;
  examples: number | null | undefined;
  onLine: (line: number) => void;
}

function Pages({ line, next, examples, onLine }: PagesProps) {
  return (
    <div className={styles.pages}>
      <label>
        From line{" "}
        <input
          type="number"
          min={1}
          value={line}
          onChange={(event) => onLine(Math.max(1, Math.floor(Number(event.target.value)) || 1))}
        />
      </label>
      <span className={`muted small ${styles.of}`}>
        {examples != null && `of ${integer(examples)}`}
      </span>
      <Button disabled={line === 1} onClick={() => onLine(Math.max(1, line - ROWS))}>
        Back
      </Button>
      <Button disabled={next === null} onClick={() => next !== null && onLine(next)}>
        Next
      </Button>
    </div>
  );
}

function RowView({ row }: { row: Row }) {
  return (
    <article className={styles.row} aria-label={`Line ${row.line}`}>
      <h3 className="small muted">Line {integer(row.line)}</h3>
      {row.problems.map((problem) => (
        <p key={problem.code + problem.message} className={problem.is_error ? "bad" : "warn"}>
          {problem.is_error ? "Error" : "Warning"}: {problem.message}
        </p>
      ))}
      {row.examples.map((example, at) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the examples of a row keep their places
        <ExampleView key={at} example={example} />
      ))}
    </article>
  );
}

function ExampleView({ example }: { example: Example }) {
  return (
    <div className={styles.example}>
      <p className="small muted num">
        {words(example.part)}
        {example.label !== undefined && <>: {example.label}</>} · {integer(example.tokens)} tokens,{" "}
        {integer(example.trained_tokens)} trained
        {example.kept_tokens < example.tokens && (
          <span className="warn">, {integer(example.tokens - example.kept_tokens)} cut off</span>
        )}
      </p>
      {turnsOf(example.segments).map((turn, at) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the turns of a chat keep their places
        <div key={at} className={styles.turn} data-role={turn.role ?? undefined}>
          {turn.role !== null && <span className={styles.role}>{words(turn.role)}</span>}
          <p>
            {turn.pieces.map((piece, place) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: the pieces of a turn keep their places
              <Text key={place} {...piece} />
            ))}
          </p>
        </div>
      ))}
    </div>
  );
}

function Text({ kind, text, marker, omitted }: Segment & { marker: boolean }) {
  const className = `${styles[kind]} ${marker ? styles.marker : ""}`;
  const more = omitted ? (
    <span className="muted"> … {integer(omitted)} characters more</span>
  ) : null;
  if (kind === "trained")
    return (
      <mark className={className}>
        {text}
        {more}
      </mark>
    );
  if (kind === "cut")
    return (
      <del className={className}>
        {text}
        {more}
      </del>
    );
  return (
    <span className={className}>
      {text}
      {more}
    </span>
  );
}
