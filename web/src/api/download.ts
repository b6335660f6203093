/** Downloads that need the key in a header: a plain link cannot send it. */

import { errorOf } from "./client";
import { storedKey } from "./session";

interface Sink {
  createWritable(): Promise<WritableStream<Uint8Array>>;
}

/**
 * Save what `path` answers as `name`. Large files go straight to disk where the browser can
 * (`showSaveFilePicker`); elsewhere they pass through memory.
 */
export async function downloadFile(path: string, name: string): Promise<void> {
  const pick = (window as { showSaveFilePicker?: (options: object) => Promise<Sink> })
    .showSaveFilePicker;
  const sink = await pick?.({ suggestedName: name }).catch((error) => {
    if (error.name === "AbortError") return null; // the user closed the dialog
    throw error;
  });
  if (sink === null) return;
  const response = await fetch(path, { headers: { authorization: `Bearer ${storedKey()}` } });
  if (!response.ok || response.body === null) throw await errorOf(response);
  if (sink !== undefined) {
    await response.body.pipeTo(await sink.createWritable());
    return;
  }
  saveBlob(await response.blob(), name);
}

/** Save what the page made itself, for example a CSV file. */
export function saveBlob(blob: Blob, name: string): void {
  const address = URL.createObjectURL(blob);
  const link = Object.assign(document.createElement("a"), { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
