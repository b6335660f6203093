"""Azure ML's models: versions of names, each of which keeps where its files lie."""

from typing import Any

import pytest

from tests.emulated.azureml import OLD, WORKSPACE, make_workspace, submit
from tests.emulated.inside import Inside

MODELS = f"{WORKSPACE}/models"
BLOB = "https://account.blob.core.windows.net/models/run-1"


async def register(inside: Inside, version: str, uri: str = BLOB, **more: Any) -> tuple[int, Any]:  # noqa: ANN401 - JSON
    """PUT a version of the model `chat`; status and body of the answer."""
    body = {"properties": {"modelUri": uri, "modelType": "custom_model"} | more}
    answer = await inside.arm.put(f"{MODELS}/chat/versions/{version}", json=body, params=OLD)
    return answer.status_code, answer.json()


async def names(inside: Inside, path: str, **query: str) -> list[str]:
    rows = (await inside.arm.get(path, params=OLD | query)).json()["value"]
    return [row["name"] for row in rows]


async def test_a_model_has_versions_the_newest_first(inside: Inside) -> None:
    await make_workspace(inside)
    made = await register(inside, "1", tags={"job": "j-1"})
    await register(inside, "2")
    versions = f"{MODELS}/chat/versions"
    whole = (await inside.arm.get(f"{MODELS}/chat", params=OLD)).json()["properties"]
    assert await names(inside, MODELS) == ["chat"]
    assert await names(inside, versions) == ["2", "1"]
    assert await names(inside, versions, **{"$top": "1"}) == ["2"]

    assert made[0] == 201
    assert (made[1]["properties"]["flavors"], made[1]["properties"]["tags"]) == ({}, {"job": "j-1"})
    assert (whole["latestVersion"], whole["nextVersion"]) == ("2", "3")


async def test_an_archived_model_is_listed_only_if_asked_for(inside: Inside) -> None:
    await make_workspace(inside)
    await register(inside, "1")
    again = await register(inside, "1", isArchived=True)
    other = await register(inside, "1", uri=f"{BLOB}-2")
    versions = f"{MODELS}/chat/versions"
    assert await names(inside, versions) == []
    assert await names(inside, versions, listViewType="ArchivedOnly") == ["1"]
    gone = [(await inside.arm.delete(f"{versions}/1", params=OLD)).status_code for _ in "ab"]
    missing = await inside.arm.get(f"{versions}/1", params=OLD)

    assert (again[0], other[0], gone, missing.status_code) == (200, 409, [200, 204], 404)


@pytest.mark.parametrize(
    ("uri", "status"),
    [
        ("azureml://jobs/a/outputs/artifacts/paths/model/", 201),
        ("azureml://datastores/workspaceblobstore/paths/model", 201),
        ("azureml://jobs/none/outputs/artifacts/paths/model/", 404),
        ("http://127.0.0.1:10000/rekindle/job/models/step-1", 201),
        ("http://account.blob.core.windows.net/models/run-1", 400),
        ("model", 400),
        ("", 400),
    ],
)
async def test_a_model_lies_at_a_blob_a_job_or_a_datastore(
    inside: Inside, uri: str, status: int
) -> None:
    await make_workspace(inside)
    await submit(inside, "a")
    assert (await register(inside, "1", uri=uri))[0] == status
