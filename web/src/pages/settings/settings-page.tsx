import { useQuery } from "@tanstack/react-query";
import { useEffect } from "react";
import { projectsQuery } from "../../api/organization-queries";
import { Answer } from "../../components/answer";
import { Panel } from "../../components/panel";
import { Table } from "../../components/table";
import { At } from "../../components/time";
import { KeysPanel } from "./keys-panel";

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
  const projects = useQuery(projectsQuery);
  return (
    <Panel title="Projects">
      <Answer query={projects} lines={3}>
        {({ data, has_more }) => (
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
                {data.map(({ id, name, created_at }) => (
                  <tr key={id}>
                    <td>{name}</td>
                    <td>
                      <code>{id}</code>
                    </td>
                    <td>
                      <At at={created_at} />
                    </td>
                  </tr>
                ))}
              </tbody>
            </Table>
            {has_more && <p className="small muted">Only the newest {data.length} are shown.</p>}
          </>
        )}
      </Answer>
    </Panel>
  );
}
