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
import { ReadingsPanel, TurnsPanel } from "./turns-panel";

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
      <Answer query={system} lines={14}>
        {(data) => (
          <div className="grid">
            <AlertsPanel system={data} />
            <Panel title="Reconcilers">
              <Work system={data} />
            </Panel>
            <TurnsPanel system={data} />
            <ReadingsPanel system={data} />
            <LimitsPanel system={data} />
            <AuditPanel />
            <Panel title="Versions">
              <Versions system={data} />
            </Panel>
          </div>
        )}
      </Answer>
    </>
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
      <p className="small muted">
        The replica that answered {runs_loops ? "runs the loops" : "runs no loops"} and{" "}
        {hears_notices ? "hears" : "does not hear"} notices of the database. Replicas leave no rows:
        ask your platform, or <code>/readyz</code> of each.
      </p>
    </>
  );
}
