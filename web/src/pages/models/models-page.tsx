import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useEffect } from "react";
import { modelsQuery } from "../../api/queries";
import { Answer } from "../../components/answer";
import { Panel } from "../../components/panel";
import { Empty } from "../../components/states";
import { lineage, matching, shortName } from "./lineage";
import { LineageTree } from "./lineage-tree";
import { ModelDetail } from "./model-detail";
import styles from "./models-page.module.css";

const route = getRouteApi("/models");

/** Base models and what was tuned from them; the address keeps the chosen one. */
export function ModelsPage() {
  const { model: chosen, search } = route.useSearch();
  const navigate = route.useNavigate();
  const models = useQuery(modelsQuery);
  const title = chosen === undefined ? "Models" : shortName(chosen);
  useEffect(() => {
    document.title = `${title} · Rekindle`;
  }, [title]);

  return (
    <>
      <h1>Models</h1>
      <div className="grid" data-chosen={chosen !== undefined}>
        <div className={`span-4 ${styles.lineage}`}>
          <Panel title="Lineage">
            <input
              type="search"
              className={styles.search}
              aria-label="Search the models"
              placeholder="Search name or job"
              defaultValue={search}
              onChange={(event) =>
                void navigate({
                  search: { model: chosen, search: event.target.value || undefined },
                  replace: true,
                  resetScroll: false,
                })
              }
            />
            <Answer query={models} lines={8}>
              {({ data }) => {
                const shown = matching(lineage(data), search ?? "");
                return shown.length > 0 ? (
                  <LineageTree branches={shown} chosen={chosen} search={search} />
                ) : (
                  <NoModels searched={data.length > 0} />
                );
              }}
            </Answer>
          </Panel>
        </div>
        <div className={`span-8 ${styles.detail}`}>
          {chosen === undefined ? (
            <Panel>
              <Empty title="Choose a model">
                <p>Its card, its files and the jobs that were trained from it appear here.</p>
              </Empty>
            </Panel>
          ) : (
            <>
              <Link to="/models" search={{ search }} className={styles.back}>
                All models
              </Link>
              <Answer query={models} lines={12}>
                {({ data }) => {
                  const model = data.find(({ id }) => id === chosen);
                  return model === undefined ? (
                    <Panel>
                      <Empty title="There is no such model">
                        <p>
                          <code>{chosen}</code> was deleted, or belongs to another project.
                        </p>
                      </Empty>
                    </Panel>
                  ) : (
                    <ModelDetail key={model.id} model={model} />
                  );
                }}
              </Answer>
            </>
          )}
        </div>
      </div>
    </>
  );
}

function NoModels({ searched }: { searched: boolean }) {
  if (searched) return <Empty title="No model matches" />;
  return (
    <Empty title="No models yet">
      <p>
        An operator stages base models: <code>python -m rekindle.stage</code>.
      </p>
    </Empty>
  );
}
