import { useQuery } from "@tanstack/react-query";
import { attemptsQuery } from "../../api/queries";
import { Empty, ErrorBox, Loading } from "../../components/states";
import { Table } from "../../components/table";
import { Tag } from "../../components/tag";
import { At } from "../../components/time";
import { money } from "../../format";
import type { Job } from "./use-live-job";

/** What each attempt rented: place, price, hours and cost. */
export function MachinesTab({ job }: { job: Job }) {
  const { data, error } = useQuery(attemptsQuery(job.id));
  if (data === undefined)
    return error === null ? <Loading lines={4} /> : <ErrorBox error={error} />;
  if (data.data.length === 0) return <Empty title="No machines were requested yet" />;
  return (
    <Table caption="Machines by attempt, newest first">
      <thead>
        <tr>
          <th className="num">Attempt</th>
          <th>State</th>
          <th>Machines</th>
          <th>Place</th>
          <th>Since</th>
          <th className="num">An hour each</th>
          <th className="num">Machine hours</th>
          <th className="num">Cost</th>
        </tr>
      </thead>
      <tbody>
        {data.data.toReversed().map((attempt) => (
          <tr key={attempt.id}>
            <td className="num">{attempt.number}</td>
            <td>
              <Tag state={attempt.outcome ?? attempt.state} />
            </td>
            <td>
              {attempt.nodes} × {attempt.sku}
            </td>
            <td>
              {attempt.region}, {attempt.capacity === "spot" ? "Spot" : "on demand"}
              {attempt.engine === "azureml" && ", Azure ML"}
            </td>
            <td>
              <At at={attempt.created_at} />
            </td>
            <td className="num">{money(attempt.price_per_hour)}</td>
            <td className="num">{Number(attempt.machine_hours).toFixed(2)}</td>
            <td className="num">{money(attempt.cost)}</td>
          </tr>
        ))}
      </tbody>
    </Table>
  );
}
