/** Send a file with progress: in one request, or in parts where it is large. */

import { ApiError, api, body, type Schemas } from "../../api/client";
import { storedKey } from "../../api/session";

export type StoredFile = Schemas["File"];

export interface Progress {
  phase: "sending" | "checking";
  done: number; // bytes
  total: number;
}

export interface Finding {
  line: number;
  code: string;
  message: string;
}

/** A file whose rows are wrong: nothing was kept. */
export class RefusedFile extends ApiError {
  override name = "RefusedFile";
  constructor(
    error: ApiError,
    readonly findings: readonly Finding[],
    readonly counts: Readonly<Record<string, number>>,
  ) {
    super(error.status, error.message, error.code, error.param);
  }
}

interface Sending {
  file: File;
  signal: AbortSignal;
  onProgress: (progress: Progress) => void;
}

const MIB = 1024 ** 2;
const SIZES = { inOne: 64 * MIB, part: 16 * MIB }; // the API takes parts of at most 64 MiB
const PARTS_AT_ONCE = 3;
const TRIES = 4;
const POLL_MS = 2_000;

/** Send the file; `sizes` says from which size on in parts, and how large a part is. */
export function upload(sending: Sending, sizes = SIZES): Promise<StoredFile> {
  return sending.file.size > sizes.inOne ? inParts(sending, sizes.part) : inOne(sending);
}

async function inOne({ file, signal, onProgress }: Sending): Promise<StoredFile> {
  const form = new FormData();
  form.append("purpose", "fine-tune");
  form.append("file", file);
  const onBytes = (sent: number) => {
    // The form is a little longer than the file; the rows are checked while they come.
    const done = Math.min(sent, file.size);
    onProgress({ phase: done < file.size ? "sending" : "checking", done, total: file.size });
  };
  return (await post("/v1/files", form, signal, onBytes)) as StoredFile;
}

async function inParts(
  { file, signal, onProgress }: Sending,
  partBytes: number,
): Promise<StoredFile> {
  const begun = await body(
    api.POST("/v1/uploads", {
      body: {
        filename: file.name,
        purpose: "fine-tune",
        bytes: file.size,
        mime_type: file.type || "application/jsonl",
      },
      signal,
    }),
  );
  try {
    const partIds = await sendParts(begun.id, { file, signal, onProgress }, partBytes);
    return await complete(begun.id, partIds, { file, signal, onProgress });
  } catch (error) {
    if (signal.aborted) {
      const path = { upload_id: begun.id };
      api.POST("/v1/uploads/{upload_id}/cancel", { params: { path } }).catch(() => undefined);
    }
    throw error;
  }
}

/** Send every part, a few at a time; the ids of the parts in the order of the file. */
async function sendParts(
  uploadId: string,
  { file, signal, onProgress }: Sending,
  partBytes: number,
): Promise<string[]> {
  const count = Math.ceil(file.size / partBytes);
  const sent = new Array<number>(count).fill(0);
  const ids = new Array<string>(count).fill("");
  let next = 0;
  const report = (part: number, bytes: number) => {
    sent[part] = bytes;
    const done = Math.min(
      sent.reduce((sum, one) => sum + one, 0),
      file.size,
    );
    onProgress({ phase: "sending", done, total: file.size });
  };
  const work = async () => {
    for (let part = next++; part < count; part = next++) {
      const piece = file.slice(part * partBytes, (part + 1) * partBytes);
      ids[part] = await sendPart(uploadId, piece, signal, (bytes) => report(part, bytes));
    }
  };
  await Promise.all(Array.from({ length: Math.min(PARTS_AT_ONCE, count) }, work));
  return ids;
}

async function sendPart(
  uploadId: string,
  piece: Blob,
  signal: AbortSignal,
  onBytes: (bytes: number) => void,
): Promise<string> {
  for (let attempt = 1; ; attempt += 1) {
    const form = new FormData();
    form.append("data", piece, "part");
    try {
      const part = await post(`/v1/uploads/${uploadId}/parts`, form, signal, onBytes);
      return (part as Schemas["UploadPart"]).id;
    } catch (error) {
      if (signal.aborted || attempt === TRIES || !isWorthRetrying(error)) throw error;
      onBytes(0);
      await new Promise((resolve) => setTimeout(resolve, 500 * 2 ** attempt));
    }
  }
}

function isWorthRetrying(error: unknown): boolean {
  return (
    error instanceof ApiError && (error.status === 0 || error.status === 429 || error.status >= 500)
  );
}

/** Complete the upload; meanwhile ask how many rows are checked. */
async function complete(
  uploadId: string,
  partIds: string[],
  { file, signal, onProgress }: Sending,
): Promise<StoredFile> {
  const path = { upload_id: uploadId };
  onProgress({ phase: "checking", done: 0, total: file.size });
  const timer = setInterval(async () => {
    const shown = await body(api.GET("/v1/uploads/{upload_id}", { params: { path } })).catch(
      () => null,
    );
    const done = shown?.progress?.bytes;
    if (done !== undefined) onProgress({ phase: "checking", done, total: file.size });
  }, POLL_MS);
  try {
    const asked = JSON.stringify({ part_ids: partIds });
    const done = await post(`/v1/uploads/${uploadId}/complete`, asked, signal);
    const stored = (done as Schemas["Upload"]).file;
    if (!stored) throw new ApiError(500, "The upload was completed without a file. Send it again.");
    return stored;
  } finally {
    clearInterval(timer);
  }
}

/** POST by XMLHttpRequest: fetch does not say how much of a body was sent. */
function post(
  path: string,
  content: FormData | string,
  signal: AbortSignal,
  onBytes?: (bytes: number) => void,
): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", path);
    request.setRequestHeader("authorization", `Bearer ${storedKey()}`);
    if (typeof content === "string") request.setRequestHeader("content-type", "application/json");
    request.upload.onprogress = (event) => onBytes?.(event.loaded);
    request.onload = () => {
      if (request.status < 400) resolve(JSON.parse(request.responseText));
      else reject(refusal(request));
    };
    request.onerror = () =>
      reject(new ApiError(0, "The connection broke while the file was sent. Send it again."));
    const abort = () => {
      request.abort();
      reject(new DOMException("The upload was cancelled.", "AbortError"));
    };
    if (signal.aborted) return abort();
    signal.addEventListener("abort", abort, { once: true });
    request.onloadend = () => signal.removeEventListener("abort", abort);
    request.send(content);
  });
}

function refusal(request: XMLHttpRequest): ApiError {
  let told: { message?: string; code?: string; param?: string } & Partial<RefusedFile> = {};
  let errors: readonly Finding[] | undefined;
  try {
    const answer = JSON.parse(request.responseText).error;
    told = answer;
    errors = answer.errors;
  } catch {
    // Not an answer of the API: of a proxy, for example.
  }
  const message = told.message ?? `The service answered ${request.status}. Send the file again.`;
  const error = new ApiError(request.status, message, told.code ?? null, told.param ?? null);
  return errors === undefined ? error : new RefusedFile(error, errors, told.counts ?? {});
}
