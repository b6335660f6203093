/** Choose a file that was uploaded before, or upload one. */

import { queryOptions, useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { type DragEvent, useId, useRef, useState } from "react";
import { api, body } from "../../api/client";
import { itemsOf, PAGE, pagesQuery } from "../../api/pages";
import { Button, buttonClass } from "../../components/button";
import { Field } from "../../components/field";
import { LoadMore } from "../../components/load-more";
import { bytes, compact, integer, percent } from "../../format";
import { FileFindings, Refusal } from "./findings";
import styles from "./new.module.css";
import { type Progress, type StoredFile, upload } from "./upload";

export const filesQuery = pagesQuery(["files"], ({ after }) =>
  body(api.GET("/v1/files", { params: { query: { limit: PAGE, after } } })),
);

export const fileQuery = (fileId: string) =>
  queryOptions({
    queryKey: ["file", fileId],
    queryFn: () => body(api.GET("/v1/files/{file_id}", { params: { path: { file_id: fileId } } })),
    staleTime: 60_000,
  });

interface FilePickerProps {
  label: string;
  fileId: string | null;
  error?: string;
  optional?: boolean;
  onChoose: (file: StoredFile | null) => void;
}

export function FilePicker({ label, fileId, error, optional, onChoose }: FilePickerProps) {
  const files = useInfiniteQuery(filesQuery);
  // Files of results, such as step_metrics.csv, are no rows to learn from.
  const listed = itemsOf(files.data?.pages ?? []).filter(({ purpose }) => purpose === "fine-tune");
  const chosen = useQuery({ ...fileQuery(fileId ?? ""), enabled: fileId !== null });
  const uploading = useUpload(onChoose);
  const isGone = fileId !== null && chosen.error !== null;
  const options = listed.some((file) => file.id === fileId) ? listed : [chosen.data, ...listed];

  return (
    <div className={styles.picker}>
      <Field label={label} error={error ?? (isGone ? chosen.error?.message : undefined)}>
        <select
          value={fileId ?? ""}
          disabled={uploading.progress !== null}
          onChange={(event) =>
            onChoose(options.find((file) => file?.id === event.target.value) ?? null)
          }
        >
          <option value="">{optional ? "None" : "Choose an uploaded file"}</option>
          {options.map(
            (file) =>
              file !== undefined && (
                <option key={file.id} value={file.id}>
                  {nameOf(file)}
                </option>
              ),
          )}
        </select>
      </Field>
      <LoadMore query={files}>Older files</LoadMore>
      <DropZone label={label} onFile={uploading.start} busy={uploading.progress !== null} />
      {uploading.progress !== null && (
        <UploadProgress progress={uploading.progress} cancel={uploading.cancel} />
      )}
      {uploading.error !== null && <Refusal error={uploading.error} name={uploading.name} />}
      {fileId === null && <p className="small muted">A JSONL file, one row a line</p>}
      {fileId !== null && chosen.isPending && <p className="small muted">Reading the file</p>}
      {uploading.error === null && chosen.data !== undefined && fileId !== null && (
        <FileFindings file={chosen.data} />
      )}
    </div>
  );
}

function nameOf(file: StoredFile): string {
  const parts = [file.filename];
  if (file.examples != null) parts.push(`${integer(file.examples)} rows`);
  if (file.counts) parts.push(`about ${compact(file.counts.tokens)} tokens`);
  parts.push(bytes(file.bytes));
  return parts.join(" · ");
}

function useUpload(onDone: (file: StoredFile) => void) {
  const client = useQueryClient();
  const [progress, setProgress] = useState<Progress | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [name, setName] = useState("");
  const controller = useRef<AbortController | null>(null);

  async function start(file: File) {
    const stop = new AbortController();
    controller.current = stop;
    setError(null);
    setName(file.name);
    setProgress({ phase: "sending", done: 0, total: file.size });
    try {
      const stored = await upload({ file, signal: stop.signal, onProgress: setProgress });
      client.setQueryData(fileQuery(stored.id).queryKey, stored);
      void client.invalidateQueries({ queryKey: filesQuery.queryKey });
      onDone(stored);
    } catch (failure) {
      if (!stop.signal.aborted) setError(failure);
    } finally {
      setProgress(null);
    }
  }

  return { progress, error, name, start, cancel: () => controller.current?.abort() };
}

interface DropZoneProps {
  label: string;
  busy: boolean;
  onFile: (file: File) => void;
}

function DropZone({ label, busy, onFile }: DropZoneProps) {
  const id = useId();
  const [over, setOver] = useState(false);

  function drop(event: DragEvent) {
    event.preventDefault();
    setOver(false);
    const file = event.dataTransfer.files[0];
    if (file !== undefined && !busy) onFile(file);
  }

  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: the file input inside is the same for keys
    <div
      className={`${styles.drop} ${over ? styles.over : ""}`}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={drop}
    >
      <input
        id={id}
        className={styles.fileInput}
        type="file"
        accept=".jsonl,.json,application/jsonl"
        disabled={busy}
        aria-label={`Upload: ${label.toLowerCase()}`}
        onChange={(event) => {
          const file = event.target.files?.[0];
          event.target.value = "";
          if (file !== undefined) onFile(file);
        }}
      />
      <label htmlFor={id} className={buttonClass()}>
        Upload a file
      </label>
      <span className="muted small">or drop it here</span>
    </div>
  );
}

function UploadProgress({ progress, cancel }: { progress: Progress; cancel: () => void }) {
  const { phase, done, total } = progress;
  const share = total === 0 ? 0 : done / total;
  const text =
    phase === "sending"
      ? `Sending: ${bytes(done)} of ${bytes(total)}, ${percent(share)}`
      : "Checking the rows";
  return (
    <div className={styles.progress}>
      <progress
        aria-label={text}
        max={1}
        value={phase === "checking" && done === total ? undefined : share}
      />
      <span className="small num">{text}</span>
      <Button onClick={cancel}>Cancel upload</Button>
    </div>
  );
}
