"""Contract of experiment trackers: the fake, MLflow's REST calls, wandb, and event files."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError

import service
from contract import events_file
from service.domain.states import JobState
from service.storage.fake import MemoryStore
from service.trackers.fake import FakeTracker
from service.trackers.mlflow import Mlflow
from service.trackers.tensorboard import TensorBoard
from service.trackers.tracker import Point, Tracker, TrackerError, TrackerRun
from service.trackers.wandb import Wandb
from service.trackers.workspace import EntraSignIn
from tests.mlflow_server import MlflowServer

JOB = "ftjob-1"
OPTIONS: dict[str, dict[str, Any]] = {
    "fake": {},
    "mlflow": {"experiment": "e", "run_name": None, "tags": {"team": "a"}},
    "wandb": {"project": "p", "entity": None, "name": None, "tags": []},
    "tensorboard": {},
}
STAND_IN = Path(__file__).parent / "wandb_stand_in"
SECRET = "a-secret-of-the-operator"
SCOPE = "https://management.azure.com/.default"
WORKSPACE_ID = (
    "/subscriptions/s/resourceGroups/g/providers/Microsoft.MachineLearningServices/workspaces/w"
)
URI = f"azureml://westeurope.api.azureml.ms/mlflow/v1.0{WORKSPACE_ID}"


@dataclass(frozen=True, kw_only=True)
class Place:
    """One tracker, and a function that returns the logged steps with duplicates."""

    kind: str
    seam: Tracker
    steps: Callable[[], list[int]]

    def run(self, outcome: JobState | None = None) -> TrackerRun:
        return TrackerRun(
            job_id=JOB, started_at=1000.0, options=OPTIONS[self.kind], outcome=outcome
        )


def points(*steps: int) -> list[Point]:
    return [Point(step=n, at=1000.0 + n, values={"train/loss": 1 / n}) for n in steps]


def wandb(folder: Path, key: str = SECRET) -> Wandb:
    paths = f"{STAND_IN}:{Path(service.__file__).parents[1]}"
    return Wandb(key=key, environment={"WANDB_DIR": str(folder), "PYTHONPATH": paths})


@pytest.fixture(params=["fake", "mlflow", "wandb", "tensorboard"])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "fake":
        fake = FakeTracker()
        return Place(kind="fake", seam=fake, steps=lambda: [p.step for p in fake.points[JOB]])
    if request.param == "mlflow":
        server = MlflowServer()
        seam = Mlflow.at("http://mlflow", "", server)
        return Place(
            kind="mlflow", seam=seam, steps=lambda: [m["step"] for m in server.logged["run0"]]
        )
    if request.param == "wandb":
        return Place(kind="wandb", seam=wandb(tmp_path), steps=lambda: _lines(tmp_path))
    store = MemoryStore()
    await store.create_container(JOB)
    return Place(kind="tensorboard", seam=TensorBoard(store=store), steps=lambda: _events(store))


def _lines(folder: Path) -> list[int]:
    lines = (folder / f"{JOB}.jsonl").read_text().splitlines()
    return [json.loads(line)["step"] for line in lines]


def _events(store: MemoryStore) -> list[int]:
    """Return the logged steps of the first nine, found by the exact bytes of their records."""
    data = b"".join(blob.data for blob in store._containers[JOB].values())
    records = {n: events_file.event(1000.0 + n, n, {"train/loss": 1 / n}) for n in range(1, 10)}
    return [n for n, record in records.items() for _ in range(data.count(record))]


async def test_a_run_that_goes_on_has_each_step_once(place: Place) -> None:
    first = await place.seam.send(place.run(), points(1, 2, 3))
    second = await place.seam.send(place.run(), points(1, 2, 3, 4))
    third = await place.seam.send(place.run(JobState.SUCCEEDED), points(1, 2, 3, 4, 5))

    assert place.steps() == [1, 2, 3, 4, 5]
    assert first == second == third
    assert JOB in first or place.kind == "mlflow"


async def test_a_run_that_ends_without_more_steps_keeps_those_it_has(place: Place) -> None:
    await place.seam.send(place.run(), points(1, 2))
    last_points: Sequence[Point] = [] if place.kind != "tensorboard" else points(1, 2)
    await place.seam.send(place.run(JobState.CANCELLED), last_points)

    assert place.steps() == [1, 2]


async def test_mlflow_gets_tags_and_the_outcome_and_batches_that_it_takes() -> None:
    server = MlflowServer()
    tracker = Mlflow.at("http://mlflow", SECRET, server)
    run = TrackerRun(job_id=JOB, started_at=1.0, options=OPTIONS["mlflow"], outcome=JobState.FAILED)
    many = [replace(p, values={f"v{i}": 1.0 for i in range(15)}) for p in points(*range(1, 200))]
    await tracker.send(run, many)

    (logged_run,) = server.runs.values()
    tags = {tag["key"]: tag["value"] for tag in logged_run["data"]["tags"]}
    assert tags == {"team": "a", "rekindle.job": JOB, "rekindle.step": "199"}
    assert logged_run["info"]["status"] == "FAILED"
    assert len(server.logged["run0"]) == 199 * 15
    assert all(r.headers["authorization"] == f"Bearer {SECRET}" for r in server.requests)


@pytest.mark.parametrize("status", [401, 403, 500])
async def test_neither_an_address_nor_a_refusal_of_mlflow_shows_a_secret(status: int) -> None:
    server = MlflowServer()
    tracker = Mlflow.at(f"http://user:{SECRET}@mlflow", SECRET, server)
    run = TrackerRun(job_id=JOB, started_at=1.0, options=OPTIONS["mlflow"])
    url = await tracker.send(run, points(1))
    assert server.requests[0].headers["authorization"].startswith("Basic ")
    server.status = status
    with pytest.raises(TrackerError) as refused:
        await tracker.send(run, points(2))

    assert SECRET not in url + str(refused.value) + repr(tracker)
    assert str(status) in str(refused.value)


@dataclass
class Credential:
    """Credential that returns a new token for each request."""

    fault: Exception | None = None
    scopes: list[str] = field(default_factory=list)
    closed: bool = False

    async def get_token(self, *scopes: str) -> AccessToken:
        if self.fault:
            raise self.fault
        self.scopes += scopes
        return AccessToken(f"token-{len(self.scopes)}", 0)

    async def close(self) -> None:
        self.closed = True


def of_workspace(server: MlflowServer, credential: Credential) -> Mlflow:
    return Mlflow.of_workspace(URI, EntraSignIn(credential=credential, scope=SCOPE), server)


async def test_a_workspace_gets_the_calls_of_mlflow_2_with_a_fresh_token_each() -> None:
    server, credential = MlflowServer(), Credential()
    tracker = of_workspace(server, credential)
    run = TrackerRun(job_id=JOB, started_at=1.0, options=OPTIONS["mlflow"])
    url = await tracker.send(run, points(1, 2))
    await tracker.send(replace(run, url=url), points(1, 2, 3))
    await tracker.close()

    sent = [request.headers["authorization"] for request in server.requests]
    assert sent == [f"Bearer token-{n + 1}" for n in range(len(sent))]
    assert set(credential.scopes) == {SCOPE}
    assert {r.url.scheme + r.url.path.partition("/api/")[0] for r in server.requests} == {
        f"https/mlflow/v2.0{WORKSPACE_ID}"
    }
    assert [m["step"] for m in server.logged["run0"]] == [1, 2, 3]
    assert url == f"https://ml.azure.com/runs/run0?wsid={WORKSPACE_ID}"
    assert credential.closed


async def test_a_workspace_without_a_token_is_a_fault_that_shows_no_secret() -> None:
    credential = Credential(fault=ClientAuthenticationError(SECRET))
    tracker = of_workspace(MlflowServer(), credential)
    with pytest.raises(TrackerError) as refused:
        await tracker.send(
            TrackerRun(job_id=JOB, started_at=1.0, options=OPTIONS["mlflow"]), points(1)
        )

    assert str(refused.value) == "Microsoft Entra ID gave no token: ClientAuthenticationError"


async def test_a_run_that_a_search_does_not_find_yet_is_not_made_twice() -> None:
    server = MlflowServer(indexed=0)
    tracker = Mlflow.at("http://mlflow", "", server)
    run = TrackerRun(job_id=JOB, started_at=1.0, options=OPTIONS["mlflow"])
    url = await tracker.send(run, points(1))
    second_url = await tracker.send(replace(run, url=url), points(1, 2))

    assert (second_url, len(server.runs)) == (url, 1)
    assert [m["step"] for m in server.logged["run0"]] == [1, 2]


async def test_a_run_that_a_user_deleted_is_made_again() -> None:
    server = MlflowServer()
    tracker = Mlflow.at("http://mlflow", "", server)
    run = TrackerRun(job_id=JOB, started_at=1.0, options=OPTIONS["mlflow"])
    url = await tracker.send(run, points(1))
    server.runs.clear()
    await tracker.send(replace(run, url=url), points(2))

    assert len(server.runs) == 1


async def test_a_refusal_of_wandb_does_not_show_the_key(tmp_path: Path) -> None:
    tracker = wandb(tmp_path, key="wrong")
    run = TrackerRun(job_id=JOB, started_at=1.0, options=OPTIONS["wandb"])
    with pytest.raises(TrackerError) as refused:
        await tracker.send(run, points(1))

    assert str(refused.value) == "wandb: PermissionError: the key ... is not valid"
    assert "wrong" not in repr(tracker)


async def test_a_wandb_that_hangs_is_killed(tmp_path: Path) -> None:
    tracker = replace(wandb(tmp_path), seconds=0.0)
    run = TrackerRun(job_id=JOB, started_at=1.0, options=OPTIONS["wandb"])
    with pytest.raises(TrackerError, match="did not finish"):
        await tracker.send(run, points(1))


async def test_event_files_hold_a_block_of_steps_each() -> None:
    store = MemoryStore()
    await store.create_container(JOB)
    tracker = TensorBoard(store=store, block_steps=2)
    run = TrackerRun(job_id=JOB, started_at=1.0, options={})
    await tracker.send(run, points(1, 2, 3))

    names = [blob.name for blob in await store.list_blobs(JOB)]
    assert names == [
        "tensorboard/events.out.tfevents.0000000001.rekindle",
        "tensorboard/events.out.tfevents.0000000003.rekindle",
    ]
