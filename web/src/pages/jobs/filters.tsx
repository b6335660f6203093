import { useEffect, useState } from "react";
import { integer, words } from "../../format";
import { type JobsSearch, PHASE_GROUPS, type PhaseGroup } from "../../search";
import styles from "./jobs-page.module.css";

interface FiltersProps {
  search: JobsSearch;
  counts?: Partial<Record<PhaseGroup, number>>;
  change: (changed: Partial<JobsSearch>) => void;
}

const TYPING_MS = 250; // after the last key

/** Phases as buttons with their counts, and a search field; the address keeps both. */
export function Filters({ search, counts, change }: FiltersProps) {
  const chosen = search.phase ?? [];
  const asked = search.search ?? "";
  const [typed, setTyped] = useState(asked);
  const [sent, setSent] = useState(asked); // what this field put into the address
  const [seen, setSeen] = useState(asked);

  if (asked !== seen) {
    setSeen(asked);
    if (asked !== sent) setTyped(asked); // a link or the back button changed the address
  }

  useEffect(() => {
    if (typed === asked) return;
    const timer = setTimeout(() => {
      setSent(typed);
      change({ search: typed || undefined });
    }, TYPING_MS);
    return () => clearTimeout(timer);
  });

  function toggle(group: PhaseGroup) {
    const phase = chosen.includes(group)
      ? chosen.filter((one) => one !== group)
      : [...chosen, group];
    change({ phase: phase.length > 0 ? phase : undefined });
  }

  return (
    <div className={styles.filters}>
      <input
        type="search"
        aria-label="Search the jobs"
        placeholder="Search name, model, id, metadata"
        value={typed}
        onChange={(event) => setTyped(event.target.value)}
      />
      <fieldset className={styles.chips} aria-label="Phases">
        {PHASE_GROUPS.map((group) => (
          <button
            key={group}
            type="button"
            aria-pressed={chosen.includes(group)}
            className={styles.chip}
            onClick={() => toggle(group)}
          >
            {words(group)} <span className="num muted">{integer(counts?.[group] ?? 0)}</span>
          </button>
        ))}
      </fieldset>
    </div>
  );
}
