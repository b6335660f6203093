import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useEffect } from "react";
import type { Schemas } from "../../api/client";
import { saveBlob } from "../../api/download";
import { costsQuery, projectCostsQuery } from "../../api/organization-queries";
import { itemsOf } from "../../api/pages";
import { Answer } from "../../components/answer";
import { Button } from "../../components/button";
import chips from "../../components/chips.module.css";
import { LoadMore } from "../../components/load-more";
import { Facts, Panel } from "../../components/panel";
import { Empty } from "../../components/states";
import { Table } from "../../components/table";
import { integer, money, percent } from "../../format";
import { RANGES } from "../../search";
import styles from "./costs-page.module.css";
import { type Costs, csvOf, type Day, dayName, daysOf } from "./days";
import { DaysChart } from "./days-chart";
import { ReconciliationPanel } from "./reconciliation-panel";

type Savings = Schemas["Savings"];

const route = getRouteApi("/costs");
const USUAL_DAYS = 30;

/** What the project spent by day, beside the price on demand, and what Azure billed. */
export function CostsPage() {
  const { days = USUAL_DAYS } = route.useSearch();
  const costs = useQuery({ ...costsQuery(days), placeholderData: (previous) => previous });
  useEffect(() => {
    document.title = "Costs · Rekindle";
  }, []);
  return (
    <>
      <div className="row">
        <h1>Costs</h1>
        <nav className={chips.chips} aria-label="Range">
          {RANGES.map((one) => (
            <Link
              key={one}
              to="/costs"
              search={{ days: one }}
              replace
              aria-current={one === days ? "true" : undefined}
            >
              {one} days
            </Link>
          ))}
        </nav>
        <span className="grow" />
        <Button
          disabled={costs.data === undefined || costs.isPlaceholderData}
          onClick={() => costs.data !== undefined && saveCsv(costs.data, days)}
        >
          Export CSV
        </Button>
      </div>
      <div className="grid">
        <Panel>
          <Totals costs={costs.data} days={days} />
        </Panel>
        <Panel title="By day (UTC)" aside={<Legend />}>
          <Answer query={costs} lines={10}>
            {(found) => <Days days={daysOf(found)} />}
          </Answer>
        </Panel>
        <Projects days={days} />
        <ReconciliationPanel days={days} />
      </div>
    </>
  );
}

function saveCsv(costs: Costs, days: number): void {
  saveBlob(new Blob([csvOf(daysOf(costs))], { type: "text/csv" }), `costs-${days}-days.csv`);
}

function Totals({ costs, days }: { costs?: Costs; days: number }) {
  return (
    <Facts
      facts={[
        { value: money(costs?.total), label: `spent in ${days} days, storage included` },
        {
          value: money(costs?.on_demand_equivalent),
          label: "for the same machine hours on demand",
        },
        { value: money(costs?.saved), label: "saved" },
        {
          value: costs === undefined ? "–" : percent(costs.saved_percent / 100, 1),
          label: "of the price on demand saved",
        },
      ]}
    />
  );
}

function Legend() {
  return (
    <span className={styles.legend}>
      <span data-kind="spent">Spent</span>
      <span data-kind="demand">On demand for the same hours</span>
    </span>
  );
}

function Days({ days }: { days: Day[] }) {
  if (days.every(({ spent, onDemand }) => spent === 0 && onDemand === 0)) {
    return (
      <Empty title="Nothing was spent in this time">
        <p>Costs appear with the first machine of a job.</p>
      </Empty>
    );
  }
  const used = days.filter(({ spent, onDemand }) => spent > 0 || onDemand > 0);
  return (
    <>
      <DaysChart days={days} />
      <details className={styles.details}>
        <summary>Days as a table</summary>
        <Table caption="Costs by day, newest first">
          <thead>
            <tr>
              <th>Day</th>
              <th className="num">Machines</th>
              <th className="num">Storage</th>
              <th className="num">On demand</th>
              <th className="num">Saved</th>
            </tr>
          </thead>
          <tbody>
            {used.toReversed().map((day) => (
              <tr key={day.start}>
                <td>{dayName(day.start)}</td>
                <td className="num">{money(day.machines)}</td>
                <td className="num">{money(day.storage)}</td>
                <td className="num">{money(day.onDemand)}</td>
                <td className="num">{money(day.saved)}</td>
              </tr>
            ))}
          </tbody>
        </Table>
      </details>
    </>
  );
}

function Projects({ days }: { days: number }) {
  const projects = useInfiniteQuery({
    ...projectCostsQuery(days),
    placeholderData: (previous) => previous,
  });
  return (
    <Panel title="By project">
      <Answer query={projects} lines={3}>
        {({ pages }) => (
          <>
            <Table caption="Costs by project, the highest first">
              <thead>
                <tr>
                  <th>Project</th>
                  <th className="num">Jobs</th>
                  <th className="num hide-narrow">Evictions</th>
                  <th className="num">Spent</th>
                  <th className="num hide-narrow">On demand</th>
                  <th className="num">Saved</th>
                </tr>
              </thead>
              <tbody>
                {itemsOf(pages).map(({ id, name, ...savings }) => (
                  <SavingsRow key={id} name={name} savings={savings} />
                ))}
                {pages[0] !== undefined && pages[0].projects > 1 && (
                  <SavingsRow name="All" savings={pages[0].whole} />
                )}
              </tbody>
            </Table>
            <LoadMore query={projects}>
              More of the {integer(pages[0]?.projects ?? 0)} projects
            </LoadMore>
          </>
        )}
      </Answer>
    </Panel>
  );
}

function SavingsRow({ name, savings }: { name: string; savings: Savings }) {
  return (
    <tr>
      <td>{name}</td>
      <td className="num">{integer(savings.jobs)}</td>
      <td className="num hide-narrow">{integer(savings.evictions)}</td>
      <td className="num">{money(savings.spent)}</td>
      <td className="num hide-narrow">{money(savings.on_demand_equivalent)}</td>
      <td className="num">
        {money(savings.saved)} ({percent(savings.saved_percent / 100)})
      </td>
    </tr>
  );
}
