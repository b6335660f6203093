import { Link } from "@tanstack/react-router";
import { Panel } from "../../components/panel";
import { Ago } from "../../components/time";
import { alertsOf } from "./alerts";
import type { System } from "./system-page";
import styles from "./system-page.module.css";

/** What a person should look at; new ones are read out. */
export function AlertsPanel({ system }: { system: System }) {
  const alerts = alertsOf(system);
  return (
    <Panel
      title="Alerts"
      aside={
        <span className="small muted">
          as of <Ago at={system.as_of} />
        </span>
      }
    >
      <div role="status">
        {alerts.length === 0 ? (
          <p className="good">Nothing needs a person now.</p>
        ) : (
          <ul className={styles.alerts}>
            {alerts.map(({ key, level, text, job, since }) => (
              <li key={key}>
                <span className={level}>{level === "bad" ? "Act" : "Look"}</span>
                <span>
                  {job !== undefined && (
                    <>
                      <Link to="/jobs/$jobId" params={{ jobId: job.id }} className={styles.job}>
                        {job.name}
                      </Link>
                      :{" "}
                    </>
                  )}
                  {text}
                </span>
                <span className="small muted">{since !== null && <Ago at={since} />}</span>
              </li>
            ))}
          </ul>
        )}
      </div>
    </Panel>
  );
}
