import { useInfiniteQuery } from "@tanstack/react-query";
import { useEffect } from "react";
import { projectsQuery } from "../../api/organization-queries";
import { itemsOf } from "../../api/pages";
import { Answer } from "../../components/answer";
import { LoadMore } from "../../components/load-more";
import { Panel } from "../../components/panel";
import { Table } from "../../components/table";
import { At } from "../../components/time";
import { KeysPanel } from "./keys-panel";
import styles from "./settings-page.module.css";

/** Keys of the project; for operators, the projects. */
export function SettingsPage() {
  useEffect(() => {
    document.title = "Settings · Rekindle";
  }, []);
  return (
    <>
      <h1>Settings</h1>
      <div className="grid">
        <KeysPanel />
        <Projects />
      </div>
    </>
  );
}

function Projects() {
  const projects = useInfiniteQuery(projectsQuery);
  return (
    <Panel title="Projects">
      <Answer query={projects} lines={3}>
        {({ pages }) => (
          <>
            <Table caption="Projects, newest first">
              <thead>
                <tr>
                  <th>Name</th>
                  <th>Id</th>
                  <th>Created</th>
                </tr>
              </thead>
              <tbody>
                {itemsOf(pages).map(({ id, name, created_at }) => (
                  <tr key={id}>
                    <td>{name}</td>
                    <td className={styles.id}>
                      <code>{id}</code>
                    </td>
                    <td>
                      <At at={created_at} />
                    </td>
                  </tr>
                ))}
              </tbody>
            </Table>
            <LoadMore query={projects}>Older projects</LoadMore>
          </>
        )}
      </Answer>
    </Panel>
  );
}
