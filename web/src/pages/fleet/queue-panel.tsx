import { Link } from "@tanstack/react-router";
import { Panel } from "../../components/panel";
import { Empty } from "../../components/states";
import { Table } from "../../components/table";
import { Ago } from "../../components/time";
import { integer, words } from "../../format";
import type { Fleet } from "./fleet-page";

/** Jobs that wait for admission, the next one first. */
export function QueuePanel({ queue }: { queue: Fleet["queue"] }) {
  return (
    <Panel title="Queue">
      {queue.length === 0 ? (
        <Empty title="No job waits for admission" />
      ) : (
        <Table caption="Jobs that wait, in order of admission">
          <thead>
            <tr>
              <th className="num">Position</th>
              <th>Job</th>
              <th>Priority</th>
              <th className="num">GPUs</th>
              <th>Waits since</th>
              <th>Why</th>
            </tr>
          </thead>
          <tbody>
            {queue.map((job) => (
              <tr key={job.job}>
                <td className="num">{job.position ?? "–"}</td>
                <td>
                  <Link to="/jobs/$jobId" params={{ jobId: job.job }}>
                    {job.job_name ?? job.job}
                  </Link>
                </td>
                <td>{words(job.priority)}</td>
                <td className="num">{integer(job.gpus)}</td>
                <td>
                  <Ago at={job.since} />
                </td>
                <td>{job.reason ?? words(job.code)}</td>
              </tr>
            ))}
          </tbody>
        </Table>
      )}
    </Panel>
  );
}
