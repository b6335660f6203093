import { useQuery } from "@tanstack/react-query";
import { getRouteApi } from "@tanstack/react-router";
import type { Schemas } from "../../api/client";
import { pricesQuery, traceQuery } from "../../api/organization-queries";
import { Answer } from "../../components/answer";
import { Chart } from "../../components/chart";
import { Panel } from "../../components/panel";
import { Empty } from "../../components/states";
import { duration, integer, money } from "../../format";
import { RANGES } from "../../search";
import styles from "./fleet-page.module.css";
import { countsOf, priceLine } from "./history";

type Offering = Schemas["FleetOffering"];

const route = getRouteApi("/fleet");
const USUAL_DAYS = 30;
const HEIGHT = 180;
const FEW = 40; // counts that are drawn as dots, too

/** Price and capacity of one place over time; the address keeps the place and the range. */
export function HistoryPanel({ offerings }: { offerings: Offering[] }) {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const days = search.days ?? USUAL_DAYS;
  const spot = offerings.filter(({ capacity_type }) => capacity_type === "spot");
  const places = [...new Set(spot.map(({ vm_size, region }) => `${vm_size}@${region}`))];
  const place = search.place ?? places[0];
  const change = (changed: object) =>
    void navigate({ search: { ...search, ...changed }, replace: true, resetScroll: false });
  return (
    <Panel
      title="History of a place (Spot)"
      aside={
        <span className={styles.choices}>
          <select
            aria-label="Place"
            value={place ?? ""}
            onChange={(event) => change({ place: event.target.value })}
          >
            {[...new Set([...places, ...(place === undefined ? [] : [place])])].map((one) => (
              <option key={one} value={one}>
                {one.replace("@", " in ")}
              </option>
            ))}
          </select>
          <select
            aria-label="Range"
            value={days}
            onChange={(event) => change({ days: Number(event.target.value) })}
          >
            {RANGES.map((one) => (
              <option key={one} value={one}>
                {one} days
              </option>
            ))}
          </select>
        </span>
      }
    >
      {place === undefined ? (
        <Empty title="No Spot machines are offered" />
      ) : (
        <div className={styles.charts}>
          <Prices place={place} days={days} />
          <Capacity place={place} days={days} />
        </div>
      )}
    </Panel>
  );
}

interface HistoryProps {
  place: string;
  days: number;
}

function Prices({ place, days }: HistoryProps) {
  const prices = useQuery(pricesQuery(days));
  return (
    <section aria-label="Prices" className={styles.history}>
      <h3>Price of a machine an hour</h3>
      <Answer query={prices} lines={6}>
        {({ data, since, until }) => {
          const found = data.find(({ vm_size, region }) => `${vm_size}@${region}` === place);
          if (found === undefined || found.prices.length === 0) {
            return (
              <Empty title="No published price is known">
                <p>Azure has published none, or was not asked yet.</p>
              </Empty>
            );
          }
          const { x, values } = priceLine(found.prices, since, until);
          return (
            <Chart
              label="Price of a machine an hour"
              x={x}
              lines={[{ label: "Spot", color: "series-1", values, steps: true }]}
              height={HEIGHT}
              time
              format={money}
            />
          );
        }}
      </Answer>
    </section>
  );
}

function Capacity({ place, days }: HistoryProps) {
  const trace = useQuery(traceQuery(place, days));
  return (
    <section aria-label="Capacity" className={styles.history}>
      <h3>Machines that Azure gave</h3>
      <Answer query={trace} lines={6}>
        {(found) => {
          const counts = countsOf(found?.trace ?? null);
          if (counts === null) {
            return (
              <Empty title="No capacity is known in this time">
                <p>It is known only while a job has machines here.</p>
              </Empty>
            );
          }
          return (
            <>
              <Chart
                label="Machines that Azure gave"
                x={counts.x}
                lines={[
                  {
                    label: "Machines",
                    color: "series-3",
                    values: counts.values,
                    steps: true,
                    points: counts.x.length <= FEW,
                  },
                ]}
                height={HEIGHT}
                time
                format={whole}
              />
              <p className="small muted">
                Known for {duration(counts.knownSeconds)} of these {days} days: while a job had
                machines here.
              </p>
            </>
          );
        }}
      </Answer>
    </section>
  );
}

/** A label for whole numbers only: there is no half machine. */
function whole(value: number): string {
  return Number.isInteger(value) ? integer(value) : "";
}
