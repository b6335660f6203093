"""Azure ML with nodes that run processes: real jobs and real evictions."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.emulated import azureml as ml
from tests.emulated.process import Emulator, descendants, group_url, wait_for

QUICK = ("--create-seconds", "0", "--delete-seconds", "0")
RANKS = (
    "echo $NODE_RANK $LOCAL_RANK $RANK/$WORLD_SIZE $MASTER_PORT $COLOUR $IMAGE_SAYS; "
    'test "$MASTER_ADDR" && echo $RANK >> ${{outputs.kept}}/ranks'
)


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[Emulator]:
    """Yield an emulator with an Azure ML workspace."""
    images = tmp_path / "images.json"
    submission = {"command": ["true"], "env": {"IMAGE_SAYS": "hello"}}
    images.write_text(json.dumps({ml.IMAGE: submission, "example/train": submission}))
    running = Emulator(tmp_path / "azure", *QUICK, "--images", str(images))
    running.make_group()
    with running.signed_in() as client:
        client.put(ml.WORKSPACE, params=ml.OLD, json={"location": "eastus"}).raise_for_status()
    yield running
    running.destroy()


@pytest.fixture
def client(emulator: Emulator) -> Iterator[httpx.Client]:
    """Yield a plain HTTP client of a workspace with an environment and a cluster."""
    with emulator.signed_in() as client:
        client.put(ml.ENVIRONMENT, params=ml.OLD, json={"properties": {"image": ml.IMAGE}})
        client.put(ml.CLUSTER, params=ml.OLD, json=ml.cluster(2)).raise_for_status()
        yield client


def submit(client: httpx.Client, name: str, body: dict[str, Any]) -> None:
    client.put(f"{ml.JOBS}/{name}", params=ml.NEW, json=body).raise_for_status()


def status(client: httpx.Client, name: str) -> str:
    return str(client.get(f"{ml.JOBS}/{name}", params=ml.OLD).json()["properties"]["status"])


def logs(client: httpx.Client, name: str) -> dict[str, str]:
    """Return what each process of a job has printed, by log file."""
    run = f"/history/v1.0{ml.WORKSPACE}/runs/{name}/details"
    files = client.get(run).json()["logFiles"]
    return {file.rpartition("/")[2]: client.get(url).text for file, url in files.items()}


def test_every_process_of_a_job_knows_its_place(client: httpx.Client) -> None:
    outputs = {"kept": {"jobOutputType": "uri_folder"}}
    submit(client, "ranks", ml.job(nodes=2, processes=2, command=RANKS, outputs=outputs))
    wait_for(lambda: status(client, "ranks") == "Completed")
    log_texts = logs(client, "ranks")

    assert sorted(log_texts) == [f"std_log_process_{rank}.txt" for rank in range(4)]
    tokens = [log_texts[name].split() for name in sorted(log_texts)]
    assert [w[:3] for w in tokens] == [
        ["0", "0", "0/4"],
        ["0", "1", "1/4"],
        ["1", "0", "2/4"],
        ["1", "1", "3/4"],
    ]
    assert {tuple(w[4:]) for w in tokens} == {("blue", "hello")}
    assert len({w[3] for w in tokens}) == 1


def test_an_evicted_job_begins_again_and_finds_what_it_kept(
    emulator: Emulator, client: httpx.Client
) -> None:
    script = (
        "echo $RANK >> ${{outputs.kept}}/ranks; "
        "test $(wc -l < ${{outputs.kept}}/ranks) -gt 2 || exec sleep 1000"
    )
    outputs = {"kept": {"jobOutputType": "uri_folder"}}
    submit(client, "long", ml.job(nodes=2, command=script, outputs=outputs))
    wait_for(lambda: len(logs(client, "long")) == 2)
    first, second = emulator.virtual_machines()
    wait_for(lambda: len(descendants(second["metadata_url"])) > 2)
    order = {"scale_set": first["scale_set"], "instance_id": first["instance_id"]}
    emulator.admin("evict", order | {"notice": False}).raise_for_status()
    wait_for(lambda: status(client, "long") == "Completed")

    assert [vm["instance_id"] for vm in emulator.virtual_machines()] == ["1", "2"]


@pytest.mark.slow
def test_a_job_that_is_cancelled_while_it_restarts_is_not_restarted(
    emulator: Emulator, client: httpx.Client
) -> None:
    script = "trap '' TERM; echo up; while :; do sleep 0.1; done"  # ends only when killed
    submit(client, "stubborn", ml.job(nodes=2, command=script))
    wait_for(lambda: list(logs(client, "stubborn").values()) == ["up\n", "up\n"])
    vm = emulator.virtual_machines()[0]
    order = {"scale_set": vm["scale_set"], "instance_id": vm["instance_id"], "notice": False}
    emulator.admin("evict", order).raise_for_status()
    client.post(f"{ml.JOBS}/stubborn/cancel", params=ml.OLD)

    wait_for(lambda: status(client, "stubborn") == "Canceled")
    assert set(logs(client, "stubborn").values()) == {"up\n"}


def test_a_job_outlives_the_emulator(emulator: Emulator, client: httpx.Client) -> None:
    submit(client, "long", ml.job(command="echo once; exec sleep 1000"))
    wait_for(lambda: any(logs(client, "long").values()))
    emulator.stop(signal.SIGKILL)
    emulator.start()
    assert status(client, "long") == "Running"
    client.post(f"{ml.JOBS}/long/cancel", params=ml.OLD)
    wait_for(lambda: status(client, "long") == "Canceled")
    (vm,) = emulator.virtual_machines()

    assert logs(client, "long") == {"std_log_process_0.txt": "once\n"}
    wait_for(lambda: len(descendants(vm["metadata_url"])) == 2)  # init and agent


@pytest.mark.parametrize("path", [ml.CLUSTER, ml.WORKSPACE, group_url().partition("?")[0]])
def test_what_is_gone_left_no_process(emulator: Emulator, client: httpx.Client, path: str) -> None:
    submit(client, "long", ml.job(nodes=2, command="echo up; exec sleep 1000"))
    wait_for(lambda: list(logs(client, "long").values()) == ["up\n", "up\n"])
    machines = emulator.virtual_machines()
    assert all(len(descendants(vm["metadata_url"])) > 2 for vm in machines)
    client.delete(path, params=ml.REMOVAL).raise_for_status()
    wait_for(lambda: client.get(path, params=ml.OLD).status_code == 404)

    assert [descendants(vm["metadata_url"]) for vm in machines] == [[], []]
    assert emulator.virtual_machines() == []


def test_an_unknown_image_fails_the_job_and_its_log_says_so(client: httpx.Client) -> None:
    version = ml.ENVIRONMENT.removesuffix("1") + "2"
    client.put(version, params=ml.OLD, json={"properties": {"image": "example/none"}})
    submit(client, "imageless", ml.job(environmentId=version))
    wait_for(lambda: status(client, "imageless") == "Failed")

    assert (
        "manifest for example/none not found" in logs(client, "imageless")["std_log_process_0.txt"]
    )
