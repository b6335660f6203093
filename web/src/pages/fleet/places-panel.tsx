import { getRouteApi, Link } from "@tanstack/react-router";
import type { Schemas } from "../../api/client";
import chips from "../../components/chips.module.css";
import { Panel } from "../../components/panel";
import { Empty } from "../../components/states";
import { Table } from "../../components/table";
import { Ago } from "../../components/time";
import { integer, money } from "../../format";
import styles from "./fleet-page.module.css";
import { capacityName } from "./machines-panel";

type Offering = Schemas["FleetOffering"];

const route = getRouteApi("/fleet");

/** Every VM size in every region, as it can be bought; the address keeps the region. */
export function PlacesPanel({ offerings }: { offerings: Offering[] }) {
  const search = route.useSearch();
  const regions = [...new Set(offerings.map(({ region }) => region))].sort();
  const shown = offerings.filter(({ region }) => region === (search.region ?? region));
  return (
    <Panel
      title="Regions and VM sizes"
      aside={
        <nav className={chips.chips} aria-label="Region">
          {[undefined, ...regions].map((region) => (
            <Link
              key={region ?? ""}
              to="/fleet"
              search={{ ...search, region }}
              replace
              resetScroll={false}
              aria-current={region === search.region ? "true" : undefined}
              activeProps={{}}
              activeOptions={{ exact: true }}
            >
              {region ?? "All"}
            </Link>
          ))}
        </nav>
      }
    >
      {shown.length === 0 ? (
        <Empty title="Nothing is offered here">
          <p>An operator sets regions and VM sizes in the settings of the service.</p>
        </Empty>
      ) : (
        <Table caption="Offered machines">
          <thead>
            <tr>
              <th>Region</th>
              <th>VM size</th>
              <th>Bought</th>
              <th className="num">An hour</th>
              <th>Capacity</th>
              <th>Spot quota (cores)</th>
              <th className="num">Evicted an hour</th>
              <th className="num">Run now</th>
            </tr>
          </thead>
          <tbody>
            {shown.map((offering) => (
              <OfferingRow key={keyOf(offering)} offering={offering} />
            ))}
          </tbody>
        </Table>
      )}
    </Panel>
  );
}

function keyOf({ region, vm_size, capacity_type, engine }: Offering): string {
  return [region, vm_size, capacity_type, engine].join(" ");
}

function OfferingRow({ offering }: { offering: Offering }) {
  const { region, vm_size, gpu, gpus, capacity_type, engine, cores } = offering;
  return (
    <tr>
      <td>{region}</td>
      <td>
        {vm_size}
        <div className="small muted">{gpu === null ? "" : `${gpus ?? "?"} × ${gpu}`}</div>
      </td>
      <td>
        {capacityName(capacity_type)}
        <div className="small muted">{engine === "azureml" ? "Azure ML" : "scale set"}</div>
      </td>
      <td className="num">
        {money(offering.per_hour)}
        {capacity_type === "spot" && offering.on_demand_per_hour !== null && (
          <div className="small muted">on demand {money(offering.on_demand_per_hour)}</div>
        )}
      </td>
      <td className={styles.capacity}>
        <Capacity offering={offering} />
      </td>
      <td>{cores === null ? <span className="muted">–</span> : <Quota {...cores} />}</td>
      <td className="num">
        {offering.eviction_rate === null ? "–" : `${offering.eviction_rate} %`}
        {offering.placement_score !== null && (
          <div className="small muted">score {offering.placement_score}</div>
        )}
      </td>
      <td className="num">{integer(offering.machines)}</td>
    </tr>
  );
}

/** Whether Azure gave such machines lately. */
function Capacity({ offering: { shortage, last_given_at: given } }: { offering: Offering }) {
  if (shortage !== null) {
    return (
      <>
        <span className="warn">
          Refused {shortage.refusals === 1 ? "once" : `${integer(shortage.refusals)} times`} since{" "}
          <Ago at={shortage.since} />
        </span>
        <div className="small muted">
          {shortage.reason} Tried again <Ago at={shortage.retry_at} />.
        </div>
      </>
    );
  }
  if (given === null) return <span className="muted">Not tried yet</span>;
  return (
    <span className="good">
      Given <Ago at={given} />
    </span>
  );
}

function Quota({ limit, used, used_by_others: others }: NonNullable<Offering["cores"]>) {
  const share = (cores: number) => `${limit > 0 ? Math.min(100, (100 * cores) / limit) : 0}%`;
  return (
    <>
      <span className="num">
        {integer(used + others)} of {integer(limit)}
      </span>
      <div className={styles.meter} aria-hidden="true">
        <i style={{ width: share(used + others), background: "var(--loading)" }} />
        <i style={{ width: share(used), background: "var(--training)" }} />
      </div>
      {others > 0 && <div className="small muted">{integer(others)} by others</div>}
    </>
  );
}
