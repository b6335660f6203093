"""Azure ML's jobs on a moved clock, and the models that they make."""

from pathlib import Path
from typing import Any

import pytest

from tests.clock import Clock
from tests.emulated import azureml as ml
from tests.emulated.inside import Inside, emulator_inside

HISTORY = f"/history/v1.0{ml.JOBS.removesuffix('/jobs')}"


async def details(inside: Inside, name: str) -> dict[str, Any]:
    body: dict[str, Any] = (await inside.arm.get(f"{HISTORY}/runs/{name}/details")).json()
    return body


async def test_a_job_prepares_waits_for_its_nodes_and_runs(tmp_path: Path) -> None:
    async with emulator_inside(tmp_path, Clock(), create_seconds=5) as inside:
        await ml.make_workspace(inside)
        await inside.pass_time(5)
        submitted = await ml.submit(inside, "a", nodes=2)
        statuses = [submitted.json()["properties"]["status"]]
        for _ in range(12):
            await inside.pass_time(1)
            statuses.append(await ml.status(inside, "a"))

    assert submitted.status_code == 201
    assert list(dict.fromkeys(statuses)) == ["Starting", "Preparing", "Queued", "Running"]


async def test_the_older_job_has_the_nodes_first(inside: Inside) -> None:
    await ml.make_workspace(inside, 2)
    await ml.submit(inside, "first", nodes=2)
    await inside.pass_time(1)
    await ml.submit(inside, "second", nodes=2)
    await inside.pass_time(15)
    assert (await ml.status(inside, "first"), await ml.status(inside, "second")) == (
        "Running",
        "Queued",
    )
    await inside.arm.post(f"{ml.JOBS}/first/cancel", params=ml.OLD)
    await inside.pass_time(3)
    assert await ml.status(inside, "second") == "Running"


async def test_a_job_that_cannot_be_restarted_fails(inside: Inside) -> None:
    await ml.make_workspace(inside, 2)
    await ml.submit(inside, "a", nodes=2)
    await inside.pass_time(15)
    await inside.arm.put(ml.CLUSTER, json=ml.cluster(1), params=ml.OLD)
    await ml.evict(inside, "1")
    await inside.pass_time(5)
    assert await ml.status(inside, "a") == "Failed"
    error = (await details(inside, "a"))["error"]["error"]

    assert error["code"] == "UserError"
    assert "PreemptionError: Nodes of this job got pre-empted" in error["message"]


async def test_a_job_fails_with_the_cluster_that_is_deleted_below_it(inside: Inside) -> None:
    await ml.make_workspace(inside, 2)
    await ml.submit(inside, "runs", nodes=2)
    await ml.submit(inside, "waits", nodes=2)
    await inside.pass_time(15)
    await inside.arm.delete(ml.CLUSTER, params=ml.REMOVAL)
    await inside.pass_time(10)
    errors = [(await details(inside, n))["error"]["error"] for n in ("runs", "waits")]
    assert [await ml.status(inside, n) for n in ("runs", "waits")] == ["Failed", "Failed"]

    assert "PreemptionError" in errors[0]["message"]
    assert errors[1]["message"] == "AzureMLCompute cluster spot does not exist"


async def test_a_cancelled_job_ends_and_stays_listed(inside: Inside) -> None:
    await ml.make_workspace(inside, 2)
    await ml.submit(inside, "a")
    await inside.pass_time(15)
    response = await inside.arm.post(f"{ml.JOBS}/a/cancel", params=ml.OLD)
    assert (response.status_code, await ml.status(inside, "a")) == (202, "CancelRequested")
    waiting = await inside.arm.get(response.headers["Location"])
    await inside.pass_time(2)
    final = await inside.arm.get(response.headers["Location"])
    assert (waiting.status_code, final.status_code) == (202, 200)
    assert await ml.status(inside, "a") == "Canceled"
    second = await inside.arm.post(f"{ml.JOBS}/a/cancel", params=ml.OLD)
    listed = (await inside.arm.get(ml.JOBS, params=ml.OLD)).json()["value"]

    assert second.status_code == 200
    assert [row["name"] for row in listed] == ["a"]


async def test_a_job_that_waits_is_cancelled_at_once(inside: Inside) -> None:
    await ml.make_workspace(inside, 2)
    await ml.submit(inside, "a")
    response = await inside.arm.post(f"{ml.JOBS}/a/cancel", params=ml.OLD)
    assert (response.status_code, await ml.status(inside, "a")) == (200, "Canceled")


async def test_a_job_beyond_its_time_limit_is_cancelled(inside: Inside) -> None:
    await ml.make_workspace(inside, 2)
    await ml.submit(inside, "a", limits={"timeout": "PT1M", "jobLimitsType": "Command"})
    await inside.pass_time(30)
    assert await ml.status(inside, "a") == "Running"
    await inside.pass_time(60)
    assert await ml.status(inside, "a") == "Canceled"


async def test_of_a_job_only_the_description_can_change(inside: Inside) -> None:
    await ml.make_workspace(inside)
    await ml.submit(inside, "a")
    refused = await ml.submit(inside, "a", command="another")
    run = f"{HISTORY}/experiments/trials/runs/a"
    await inside.arm.patch(run, json={"tags": {"x": "y"}, "hidden": True})
    properties = (await inside.arm.get(f"{ml.JOBS}/a", params=ml.OLD)).json()["properties"]
    active = (await inside.arm.get(ml.JOBS, params=ml.OLD)).json()["value"]
    archived = await inside.arm.get(ml.JOBS, params=ml.OLD | {"listViewType": "ArchivedOnly"})

    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "UserError")
    assert "job's command cannot be changed" in refused.json()["error"]["message"]
    assert (properties["tags"], active) == ({"x": "y"}, [])
    assert [row["name"] for row in archived.json()["value"]] == ["a"]


async def test_a_job_has_only_what_is_in_its_workspace(tmp_path: Path) -> None:
    """Roles are given for workspaces: a job in one is no way to the nodes of another."""
    async with emulator_inside(tmp_path, Clock()) as inside:
        await ml.make_workspace(inside, 1)
        other_workspace = f"{ml.WORKSPACE}-2"
        await inside.arm.put(other_workspace, json={"location": "eastus"}, params=ml.OLD)
        own = {"compute": ml.CLUSTER, "environment": ml.ENVIRONMENT}
        foreign = {
            "compute": f"{other_workspace}/computes/other",
            "environment": f"{other_workspace}/environments/e",
        }
        await inside.arm.put(foreign["compute"], json=ml.cluster(), params=ml.OLD)
        refused = [
            await inside.arm.put(
                f"{other_workspace}/jobs/a",
                json=ml.job(computeId=mixed["compute"], environmentId=mixed["environment"]),
                params=ml.NEW,
            )
            for mixed in (own, foreign | {"environment": ml.ENVIRONMENT})
        ]

    assert [response.status_code for response in refused] == [400, 400]
    assert [response.json()["error"]["message"] for response in refused] == [
        "AzureMLCompute cluster spot does not exist",
        "Environment train:1 is not found.",
    ]


async def test_an_environment_is_an_image_and_keeps_it(inside: Inside) -> None:
    await ml.make_workspace(inside)
    repeated = await inside.arm.put(
        ml.ENVIRONMENT, json={"properties": {"image": "x"}}, params=ml.OLD
    )
    built = {"properties": {"image": "x", "condaFile": "dependencies: []"}}
    other_version = ml.ENVIRONMENT.removesuffix("1") + "2"
    conda = await inside.arm.put(other_version, json=built, params=ml.OLD)
    await inside.arm.put(other_version, json={"properties": {"image": "x"}}, params=ml.OLD)
    listed = await inside.arm.get(ml.ENVIRONMENT.removesuffix("/1"), params=ml.OLD)
    container = await inside.arm.get(ml.ENVIRONMENT.removesuffix("/versions/1"), params=ml.OLD)
    curated = "azureml://registries/azureml/environments/acpt/versions/9"
    duplicate = await ml.submit(inside, "a", environmentId=curated)

    assert (repeated.status_code, conda.status_code, duplicate.status_code) == (409, 400, 201)
    assert [row["name"] for row in listed.json()["value"]] == ["2", "1"]
    assert container.json()["properties"]["latestVersion"] == "2"


MODELS = f"{ml.WORKSPACE}/models"
BLOB = "https://account.blob.core.windows.net/models/run-1"


async def register(
    inside: Inside,
    version: str,
    uri: str = BLOB,
    **properties: Any,  # noqa: ANN401 - JSON
) -> tuple[int, Any]:
    """PUT a version of the model `chat`; status and body of the answer."""
    body = {"properties": {"modelUri": uri, "modelType": "custom_model"} | properties}
    response = await inside.arm.put(f"{MODELS}/chat/versions/{version}", json=body, params=ml.OLD)
    return response.status_code, response.json()


async def names(inside: Inside, path: str, **query: str) -> list[str]:
    rows = (await inside.arm.get(path, params=ml.OLD | query)).json()["value"]
    return [row["name"] for row in rows]


async def test_a_model_has_versions_the_newest_first(inside: Inside) -> None:
    await ml.make_workspace(inside)
    registered = await register(inside, "1", tags={"job": "j-1"})
    await register(inside, "2")
    versions = f"{MODELS}/chat/versions"
    container = (await inside.arm.get(f"{MODELS}/chat", params=ml.OLD)).json()["properties"]
    assert await names(inside, MODELS) == ["chat"]
    assert await names(inside, versions) == ["2", "1"]
    assert await names(inside, versions, **{"$top": "1"}) == ["2"]

    assert registered[0] == 201
    assert (registered[1]["properties"]["flavors"], registered[1]["properties"]["tags"]) == (
        {},
        {"job": "j-1"},
    )
    assert (container["latestVersion"], container["nextVersion"]) == ("2", "3")


@pytest.mark.parametrize(
    ("uri", "status"),
    [
        ("azureml://jobs/a/outputs/artifacts/paths/model/", 201),
        ("azureml://jobs/none/outputs/artifacts/paths/model/", 404),
        ("http://127.0.0.1:10000/rekindle/job/models/step-1", 201),
        ("http://account.blob.core.windows.net/models/run-1", 400),
        ("", 400),
    ],
)
async def test_a_model_lies_at_a_blob_a_job_or_a_datastore(
    inside: Inside, uri: str, status: int
) -> None:
    await ml.make_workspace(inside)
    await ml.submit(inside, "a")
    assert (await register(inside, "1", uri=uri))[0] == status
