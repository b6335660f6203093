import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { Ago } from "../../components/time";
import { integer } from "../../format";
import type { Branch, Model } from "./lineage";
import styles from "./models-page.module.css";

interface TreeProps {
  branches: readonly Branch[];
  chosen?: string;
  search?: string; // kept in the links
}

/** Nested lists: each model stands below the one that it was trained from. */
export function LineageTree({ branches, chosen, search }: TreeProps) {
  return (
    <ul className={styles.tree}>
      {branches.map((branch) => (
        <li key={branch.key}>
          <Row branch={branch} chosen={chosen} search={search} />
          {branch.children.length > 0 && (
            <LineageTree branches={branch.children} chosen={chosen} search={search} />
          )}
        </li>
      ))}
    </ul>
  );
}

interface RowProps extends Omit<TreeProps, "branches"> {
  branch: Branch;
}

function Row({ branch, chosen, search }: RowProps) {
  const { model, name, checkpoints, fromStep } = branch;
  const holdsChosen = checkpoints.some(({ id }) => id === chosen);
  const [opened, setOpened] = useState(false);
  const open = opened || holdsChosen;
  return (
    <>
      <div className={styles.model}>
        {model === null ? (
          <span className="muted">
            {name}{" "}
            <span className="small">({checkpoints.length > 0 ? "no final model" : "deleted"})</span>
          </span>
        ) : (
          <ModelLink model={model} chosen={chosen} search={search}>
            {name}
          </ModelLink>
        )}
        <span className="small muted">
          {model?.owned_by === "base" && "base"}
          {model !== null && model.owned_by !== "base" && <Ago at={model.created} />}
          {fromStep !== null && `, from step ${integer(fromStep)}`}
        </span>
        {checkpoints.length > 0 && (
          <button
            type="button"
            className={styles.toggle}
            aria-expanded={open}
            aria-label={`${count(checkpoints.length)} of ${name}`}
            disabled={holdsChosen}
            onClick={() => setOpened(!opened)}
          >
            {count(checkpoints.length)}
          </button>
        )}
      </div>
      {open && (
        <ul className={styles.checkpoints} aria-label={`Checkpoints of ${name}`}>
          {checkpoints.map((checkpoint) => (
            <li key={checkpoint.id}>
              <ModelLink model={checkpoint} chosen={chosen} search={search}>
                step {integer(checkpoint.step ?? 0)}
              </ModelLink>
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

function count(checkpoints: number): string {
  return checkpoints === 1 ? "1 checkpoint" : `${integer(checkpoints)} checkpoints`;
}

interface LinkProps extends Omit<TreeProps, "branches"> {
  model: Model;
  children: React.ReactNode;
}

function ModelLink({ model, chosen, search, children }: LinkProps) {
  return (
    <Link
      to="/models"
      search={{ model: model.id, search }}
      resetScroll={false}
      className={styles.name}
      aria-current={model.id === chosen ? "true" : undefined}
    >
      {children}
    </Link>
  );
}
