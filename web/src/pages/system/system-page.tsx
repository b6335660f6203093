import { useQuery } from "@tanstack/react-query";
import { useEffect } from "react";
import type { Schemas } from "../../api/client";
import { systemQuery } from "../../api/organization-queries";
import { Answer } from "../../components/answer";
import { Facts, Panel } from "../../components/panel";
import { duration, integer, words } from "../../format";
import { AlertsPanel } from "./alerts-panel";
import { AuditPanel } from "./audit-panel";
import { LimitsPanel } from "./limits-panel";
import styles from "./system-page.module.css";
import { ReadingsPanel, ReplicasPanel, TurnsPanel } from "./turns-panel";

export type System = Schemas["System"];

/** How the service itself stands: alerts, loops, replicas, Azure's limits and leaks. */
export function SystemPage() {
  const system = useQuery(systemQuery);
  useEffect(() => {
    document.title = "System · Rekindle";
  }, []);
  return (
    <>
      <h1>System</h1>
      {system.data === undefined ? (
        <div className="grid">
          <Panel title="State of the service">
            <Answer query={system} lines={14}>
              {() => null}
            </Answer>
          </Panel>
        </div>
      ) : (
        <Answer query={system}>{(data) => <Sections system={data} />}</Answer>
      )}
    </>
  );
}

function Sections({ system }: { system: System }) {
  return (
    <div className="grid">
      <AlertsPanel system={system} />
      <Panel title="Reconcilers">
        <Work system={system} />
      </Panel>
      <ReplicasPanel system={system} />
      <TurnsPanel system={system} />
      <ReadingsPanel system={system} />
      <LimitsPanel system={system} />
      <AuditPanel />
      <Panel title="Versions">
        <Versions system={system} />
      </Panel>
    </div>
  );
}

function Work({ system }: { system: System }) {
  return (
    <Facts
      facts={system.work.flatMap(({ name, due, lag_seconds, leased }) => [
        { value: integer(due), label: `${words(name).toLowerCase()} wait for a reconciler` },
        { value: integer(leased), label: `${words(name).toLowerCase()} are worked on` },
        {
          value: duration(lag_seconds),
          label: `lag of the oldest of the ${words(name).toLowerCase()}`,
        },
      ])}
    />
  );
}

function Versions({ system }: { system: System }) {
  const { version, runs_loops, hears_notices } = system.this_replica;
  return (
    <>
      <Facts
        facts={[
          { value: version ?? "–", label: version === null ? "see the image's tag" : "release" },
          { value: system.schema_revision, label: "schema revision" },
          { value: system.postgres_version, label: "PostgreSQL" },
        ]}
      />
      <p className={`small muted ${styles.note}`}>
        The replica that answered {runs_loops ? "runs the loops" : "runs no loops"} and{" "}
        {hears_notices ? "hears" : "does not hear"} notices of the database.
      </p>
    </>
  );
}
