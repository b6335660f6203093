import { useQuery } from "@tanstack/react-query";
import { useEffect } from "react";
import type { Schemas } from "../../api/client";
import { fleetQuery } from "../../api/organization-queries";
import { Answer } from "../../components/answer";
import { Facts, Panel } from "../../components/panel";
import { integer, money } from "../../format";
import { HistoryPanel } from "./history-panel";
import { MachinesPanel } from "./machines-panel";
import { PlacesPanel } from "./places-panel";
import { QueuePanel } from "./queue-panel";

export type Fleet = Schemas["Fleet"];

/** Machines that run, places that offer them, and jobs that wait for them. */
export function FleetPage() {
  const fleet = useQuery(fleetQuery);
  useEffect(() => {
    document.title = "Fleet · Rekindle";
  }, []);
  return (
    <>
      <div className="row">
        <h1>Fleet</h1>
        {fleet.data !== undefined && (
          <span className="small muted">
            {fleet.data.all_projects
              ? "Machines and jobs of all projects"
              : "Machines and jobs of this project; an operator's key shows all projects"}
          </span>
        )}
      </div>
      <Answer query={fleet} lines={14}>
        {(data) => (
          <div className="grid">
            <Panel>
              <Totals fleet={data} />
            </Panel>
            <MachinesPanel fleet={data} />
            <QueuePanel queue={data.queue} />
            <PlacesPanel offerings={data.offerings} />
            <HistoryPanel offerings={data.offerings} />
          </div>
        )}
      </Answer>
    </>
  );
}

function Totals({ fleet }: { fleet: Fleet }) {
  const running = fleet.attempts.reduce((sum, attempt) => sum + attempt.running, 0);
  const ordered = fleet.attempts.reduce((sum, attempt) => sum + attempt.machines, 0);
  const short = fleet.offerings.filter(({ shortage }) => shortage !== null).length;
  return (
    <Facts
      facts={[
        { value: integer(running), label: `machines run, of ${integer(ordered)} ordered` },
        {
          value: money(fleet.per_hour),
          label: `an hour now; ${money(fleet.on_demand_per_hour)} on demand`,
        },
        { value: integer(fleet.queue.length), label: "jobs wait for admission" },
        {
          value: integer(short),
          label: `of ${integer(fleet.offerings.length)} offers lack capacity`,
        },
      ]}
    />
  );
}
