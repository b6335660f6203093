import { useQuery } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, useState } from "react";
import { ApiError, errorOf } from "../../api/client";
import { subscribe } from "../../api/live";
import { attemptsQuery } from "../../api/queries";
import { storedKey } from "../../api/session";
import { Empty, ErrorBox, Loading } from "../../components/states";
import styles from "./detail-tabs.module.css";
import { logLines } from "./log-lines";
import type { Job } from "./use-live-job";

const TAIL = 2_000; // lines that are read at first
const LINE_PX = 18;

/** What a rank prints: follows the end, and searches. */
export function LogsTab({ job }: { job: Job }) {
  const attempts = useQuery(attemptsQuery(job.id)).data?.data ?? [];
  const [attempt, setAttempt] = useState<string>();
  const [rank, setRank] = useState(0);
  const [search, setSearch] = useState("");
  const [follow, setFollow] = useState(true);
  const shown = attempt ?? attempts.at(-1)?.id;
  const nodes = attempts.find(({ id }) => id === shown)?.nodes ?? 1;
  const ranks = nodes * (job.plan.processes_per_node ?? 1);

  if (shown === undefined) {
    return (
      <Empty title="No log yet">
        <p>Lines appear when the first machine has started.</p>
      </Empty>
    );
  }
  return (
    <>
      <div className={styles.bar}>
        <label>
          Attempt{" "}
          <select value={shown} onChange={(event) => setAttempt(event.target.value)}>
            {attempts.toReversed().map(({ id, number }) => (
              <option key={id} value={id}>
                {number}
              </option>
            ))}
          </select>
        </label>
        <label>
          Rank{" "}
          <select value={rank} onChange={(event) => setRank(Number(event.target.value))}>
            {Array.from({ length: ranks }, (_, number) => number).map((number) => (
              <option key={number}>{number}</option>
            ))}
          </select>
        </label>
        <input
          type="search"
          aria-label="Search the log"
          placeholder="Search"
          value={search}
          onChange={(event) => setSearch(event.target.value)}
        />
        <label>
          <input
            type="checkbox"
            checked={follow}
            onChange={(event) => setFollow(event.target.checked)}
          />{" "}
          Follow the end
        </label>
      </div>
      <Log
        key={`${shown}-${rank}`}
        jobId={job.id}
        attempt={shown}
        rank={rank}
        search={search}
        follow={follow}
        stopFollowing={() => setFollow(false)}
      />
    </>
  );
}

interface LogProps {
  jobId: string;
  attempt: string;
  rank: number;
  search: string;
  follow: boolean;
  stopFollowing: () => void;
}

function Log({ jobId, attempt, rank, search, follow, stopFollowing }: LogProps) {
  const { lines, error, cut } = useLog(jobId, attempt, rank);
  const wanted = search.toLowerCase();
  const found = useMemo(
    () =>
      wanted === ""
        ? (lines ?? [])
        : (lines ?? []).filter((line) => line.toLowerCase().includes(wanted)),
    [lines, wanted],
  );
  const box = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({
    count: found.length,
    getScrollElement: () => box.current,
    estimateSize: () => LINE_PX,
    overscan: 30,
  });

  useEffect(() => {
    if (follow && found.length > 0) rows.scrollToIndex(found.length - 1, { align: "end" });
  }, [follow, found.length, rows]);

  if (error !== null) return <ErrorBox error={error} />;
  if (lines === null) return <Loading lines={8} />;
  if (lines.length === 0) return <Empty title="This rank has printed nothing yet" />;
  return (
    <>
      <section
        ref={box}
        className={styles.log}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a box that scrolls is reached by keyboard
        tabIndex={0}
        aria-label={`Log of rank ${rank}`}
        onWheel={(event) => event.deltaY < 0 && stopFollowing()}
        onKeyDown={(event) => ["ArrowUp", "PageUp", "Home"].includes(event.key) && stopFollowing()}
      >
        <div className={styles.lines} style={{ height: rows.getTotalSize() }}>
          {rows.getVirtualItems().map((row) => (
            <div
              key={row.key}
              className={styles.line}
              style={{ transform: `translateY(${row.start}px)` }}
            >
              {found[row.index]}
            </div>
          ))}
        </div>
      </section>
      <p className="small muted" role="status">
        {wanted === "" ? `${lines.length} lines` : `${found.length} of ${lines.length} lines match`}
        {cut && "; older lines are not shown"}
      </p>
    </>
  );
}

/** The last lines, and every line that comes. */
function useLog(jobId: string, attempt: string, rank: number) {
  const [lines, setLines] = useState<string[] | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [cut, setCut] = useState(false);

  useEffect(() => {
    const leave = new AbortController();
    const path = `/v1/fine_tuning/jobs/${jobId}/logs`;
    const query = `attempt=${attempt}&rank=${rank}`;
    let stop = () => {};

    async function read() {
      const first = await fetch(`${path}?${query}&tail=${TAIL}`, {
        headers: { authorization: `Bearer ${storedKey()}` },
        signal: leave.signal,
      });
      if (!first.ok) throw await errorOf(first);
      const take = logLines();
      const show = (text: string) => {
        const { lines: taken, dropped } = take(text);
        setLines(taken);
        if (dropped) setCut(true);
      };
      setCut(first.headers.get("x-log-offset") !== "0");
      show(await first.text());
      if (first.headers.get("x-log-complete") === "true") return;
      stop = subscribe({
        path: `${path}/stream?${query}`,
        lastId: first.headers.get("x-next-offset") ?? undefined,
        onState: () => undefined,
        onData: (data) => show((data as { text: string }).text),
      });
    }

    read().catch((failure) => {
      if (leave.signal.aborted) return;
      if (failure instanceof ApiError && failure.status === 404) setLines([]);
      else setError(failure);
    });
    return () => {
      leave.abort();
      stop();
    };
  }, [jobId, attempt, rank]);

  return { lines, error, cut };
}
