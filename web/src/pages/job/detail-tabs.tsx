import { Tabs } from "@base-ui/react/tabs";
import { getRouteApi } from "@tanstack/react-router";
import type { ComponentType } from "react";
import type { JobSearch } from "../../search";
import { CheckpointsTab } from "./checkpoints-tab";
import { ConfigurationTab } from "./configuration-tab";
import { DataTab } from "./data-tab";
import styles from "./detail-tabs.module.css";
import { EventsTab } from "./events-tab";
import { LogsTab } from "./logs-tab";
import { MachinesTab } from "./machines-tab";
import type { Job } from "./use-live-job";

const route = getRouteApi("/jobs/$jobId");

const TABS: readonly [NonNullable<JobSearch["tab"]>, string, ComponentType<{ job: Job }>][] = [
  ["logs", "Logs", LogsTab],
  ["events", "Events", EventsTab],
  ["checkpoints", "Checkpoints", CheckpointsTab],
  ["configuration", "Configuration", ConfigurationTab],
  ["data", "Data", DataTab],
  ["machines", "Machines", MachinesTab],
];

/** What is looked at less often; the address keeps which one is open. */
export function DetailTabs({ job }: { job: Job }) {
  const { tab = "logs" } = route.useSearch();
  const navigate = route.useNavigate();
  return (
    <Tabs.Root
      value={tab}
      onValueChange={(value) =>
        void navigate({ search: { tab: value }, replace: true, resetScroll: false })
      }
    >
      <Tabs.List className={styles.tabs} aria-label="Details of the job">
        {TABS.map(([value, name]) => (
          <Tabs.Tab key={value} value={value} className={styles.tab}>
            {name}
          </Tabs.Tab>
        ))}
      </Tabs.List>
      {TABS.map(([value, , Content]) => (
        <Tabs.Panel key={value} value={value} className={styles.panel}>
          <Content job={job} />
        </Tabs.Panel>
      ))}
    </Tabs.Root>
  );
}
