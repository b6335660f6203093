import { HttpResponse, http } from "msw";
import { setupServer } from "msw/node";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { type Progress, RefusedFile, upload } from "../src/pages/new/upload";
import { FILE } from "./answers";

const SIZES = { inOne: 4, part: 4 };

const server = setupServer();
beforeAll(() => server.listen({ onUnhandledRequest: "error" }));
afterEach(() => server.resetHandlers());
afterAll(() => server.close());

function sending(text: string, stop = new AbortController()) {
  const progress: Progress[] = [];
  return {
    file: new File([text], "rows.jsonl"),
    signal: stop.signal,
    onProgress: (one: Progress) => progress.push(one),
    progress,
  };
}

const begins = http.post("*/v1/uploads", () => HttpResponse.json({ id: "upload-1" }));

test("a large file is sent in parts, which are named in the order of the file", async () => {
  let named: unknown;
  server.use(
    begins,
    http.post("*/v1/uploads/upload-1/parts", async ({ request }) => {
      const sent = /\r\n\r\n([a-z]+)\r\n/.exec(await request.text())?.[1];
      return HttpResponse.json({ id: `part-${sent}` });
    }),
    http.post("*/v1/uploads/upload-1/complete", async ({ request }) => {
      named = await request.json();
      return HttpResponse.json({ id: "upload-1", status: "completed", file: FILE });
    }),
  );
  const one = sending("abcdefghij");
  expect(await upload(one, SIZES)).toEqual(FILE);
  expect(named).toEqual({ part_ids: ["part-abcd", "part-efgh", "part-ij"] });
  expect(one.progress.at(-1)).toEqual({ phase: "checking", done: 0, total: 10 });
});

test("a large file with wrong rows says which lines", async () => {
  server.use(
    begins,
    http.post("*/v1/uploads/upload-1/parts", () => HttpResponse.json({ id: "part-1" })),
    http.post("*/v1/uploads/upload-1/complete", () =>
      HttpResponse.json(
        {
          error: {
            message: "1 of 2 lines is wrong.",
            code: "invalid_file_format",
            errors: [{ line: 2, code: "invalid_json", message: "Expecting value" }],
            counts: { invalid_json: 1 },
          },
        },
        { status: 400 },
      ),
    ),
  );
  const refusal = await upload(sending("abcdefghij"), SIZES).catch((error) => error);
  expect(refusal).toBeInstanceOf(RefusedFile);
  expect(refusal.findings).toEqual([{ line: 2, code: "invalid_json", message: "Expecting value" }]);
});

test("an upload that is cancelled frees its parts", async () => {
  const stop = new AbortController();
  const isCancelled = new Promise<void>((resolve) => {
    server.use(
      begins,
      http.post("*/v1/uploads/upload-1/parts", () => {
        stop.abort();
        return new Promise<never>(() => undefined); // no answer ever comes
      }),
      http.post("*/v1/uploads/upload-1/cancel", () => {
        resolve();
        return HttpResponse.json({ id: "upload-1", status: "cancelled" });
      }),
    );
  });
  await expect(upload(sending("abcdefghij", stop), SIZES)).rejects.toThrow("cancelled");
  await isCancelled;
});
