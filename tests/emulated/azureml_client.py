"""Session of the real azure-ai-ml with an emulator: `python azureml_client.py ARM METADATA`.

The interpreter needs azure-ai-ml and azure-identity, and REQUESTS_CA_BUNDLE must be set. It imports
no module of this repository. It prints what it sees as JSON, one line per item.
"""

import json
import logging
import sys
import time
import urllib.request
import warnings
from collections.abc import Callable
from typing import Any

from azure.ai.ml import MLClient, command
from azure.ai.ml.entities import (
    AmlCompute,
    Environment,
    IdentityConfiguration,
    ManagedIdentityConfiguration,
    Model,
)
from azure.identity import ClientSecretCredential

SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
TENANT = "11111111-1111-1111-1111-111111111111"
GROUP = "rekindle"
TIMEOUT = 60.0
PULLER = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}"
    "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/puller"
)
# The first run waits for its eviction.
RESTARTED = (
    "echo rank $RANK of $WORLD_SIZE; echo $RANK >> ${{outputs.kept}}/ranks; "
    "test $(wc -l < ${{outputs.kept}}/ranks) -gt 2 || exec sleep 20"
)


def main(arm: str, metadata: str) -> None:
    """Read the workspace, create a cluster, run and evict jobs, cancel one, and clean up."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    ml = _client(arm)
    workspace = ml.workspaces.get("ws")
    _say("workspace", workspace.name, workspace.location)
    wanted = AmlCompute(
        name="spot",
        size="Standard_ND96amsr_A100_v4",
        tier="low_priority",
        max_instances=2,
        idle_time_before_scale_down=120,
        identity=IdentityConfiguration(
            type="user_assigned",
            user_assigned_identities=[ManagedIdentityConfiguration(resource_id=PULLER)],
        ),
        tags={"attempt": "1"},
    )
    cluster = ml.compute.begin_create_or_update(wanted).result()
    _say("cluster", cluster.name, cluster.tier, cluster.provisioning_state)
    _say("cluster kept", cluster.tags, cluster.identity.type)
    _say("usage", [u.limit for u in ml.compute.list_usage(location="eastus")])
    ml.environments.create_or_update(Environment(name="train", version="1", image="example/train"))
    _evicted(ml, metadata)
    _evicted_for_good(ml, metadata)
    _models(ml)
    _cancelled(ml)
    _failed(ml)
    _say("jobs", sorted((job.name, job.status) for job in ml.jobs.list()))
    ml.compute.begin_delete("spot").result()
    _say("clusters", [found.name for found in ml.compute.list()])


def _client(arm: str) -> MLClient:
    cloud = {
        "resource_manager": arm,
        "azure_portal": arm,
        "active_directory": arm,
        "aml_resource_id": arm,
        "storage_endpoint": "localhost",
        "registry_discovery_endpoint": arm,
    }
    credential = ClientSecretCredential(
        TENANT, "me", "any", authority=arm, disable_instance_discovery=True
    )
    return MLClient(
        credential,
        SUBSCRIPTION,
        GROUP,
        "ws",
        cloud="emulator",
        cloud_metadata=cloud,
        enable_telemetry=False,
    )


def _evicted(ml: MLClient, metadata: str) -> None:
    job = command(
        name="evicted",
        command=RESTARTED,
        environment="train:1",
        compute="spot",
        instance_count=2,
        distribution={"type": "pytorch", "process_count_per_instance": 1},
        outputs={"kept": {"type": "uri_folder"}},
    )
    _say("submitted", ml.jobs.create_or_update(job).name)
    _until(ml, "evicted", "Running")
    machine = _wait(lambda: [vm for vm in _machines(metadata) if vm["state"] == "running"])[0]
    _post(
        metadata,
        "evict",
        scale_set=machine["scale_set"],
        instance_id=machine["instance_id"],
        notice=False,
    )
    _until(ml, "evicted", "Completed")
    ml.jobs.stream("evicted")


def _evicted_for_good(ml: MLClient, metadata: str) -> None:
    """Run a job with an anonymous environment, preempt its node, and let the job fail."""
    job = command(
        name="preempted",
        command="sleep 1000",
        environment=Environment(image="example/train"),
        environment_variables={"COLOUR": "blue"},
        compute="spot",
        instance_count=2,
        distribution={"type": "pytorch", "process_count_per_instance": 1},
        tags={"attempt": "1"},
    )
    job.set_limits(timeout=3600)
    ml.jobs.create_or_update(job)
    _until(ml, "preempted", "Running")
    _post(metadata, "azureml/silence", job="preempted", seconds=1)
    _until(ml, "preempted", "NotResponding")
    _until(ml, "preempted", "Running")
    # 1.35.2 fills the members as the answer spells them; `node_state` and its like stay None.
    nodes = [vars(node) for node in ml.compute.list_nodes("spot")]
    _say("nodes", [(n["nodeState"], n["runId"], bool(n["privateIpAddress"])) for n in nodes])
    _post(metadata, "azureml/preempt", job="preempted", nodes=1, then="fail")
    _until(ml, "preempted", "Failed")
    try:
        ml.jobs.stream("preempted")
    except Exception as error:  # noqa: BLE001 - whatever it raises is what is shown
        _say("preemption", "PreemptionError: Nodes of this job got pre-empted" in str(error))


def _models(ml: MLClient) -> None:
    path = "azureml://jobs/evicted/outputs/kept/paths/model"
    first = ml.models.create_or_update(Model(name="chat", path=path, tags={"job": "evicted"}))
    blob = "https://account.blob.core.windows.net/models/run-1"
    second = ml.models.create_or_update(Model(name="chat", version="7", path=blob))
    _say("models", first.version, second.version, second.path == blob)
    ml.models.archive("chat", version="1")
    _say(
        "versions", [m.version for m in ml.models.list("chat")], [m.name for m in ml.models.list()]
    )
    _say("model", ml.models.get("chat", label="latest").version, ml.models.get("chat", "1").tags)


def _cancelled(ml: MLClient) -> None:
    ml.jobs.create_or_update(
        command(name="cancelled", command="sleep 1000", environment="train:1", compute="spot")
    )
    _until(ml, "cancelled", "Running")
    ml.jobs.begin_cancel("cancelled").result()
    _until(ml, "cancelled", "Canceled")


def _failed(ml: MLClient) -> None:
    """Stream the logs of a job that fails."""
    said = "echo I shall fail; sleep 3; exit 3"
    ml.jobs.create_or_update(
        command(name="failed", command=said, environment="train:1", compute="spot")
    )
    try:
        ml.jobs.stream("failed")
    except Exception as error:  # noqa: BLE001 - whatever it raises is what is shown
        _say("refused", type(error).__name__, "status code 3" in str(error))


def _until(ml: MLClient, name: str, status: str) -> None:
    _wait(lambda: ml.jobs.get(name).status == status)
    _say(name, status)


def _wait(found: Callable[[], Any]) -> Any:  # noqa: ANN401 - what is found
    deadline = time.monotonic() + TIMEOUT
    while not (value := found()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)  # noqa: TID251 - a program of its own
    return value


def _machines(metadata: str) -> Any:  # noqa: ANN401 - JSON
    with urllib.request.urlopen(f"{metadata}/_emulator/virtualMachines") as answer:
        return json.load(answer)["value"]


def _post(metadata: str, order: str, **body: object) -> None:
    data = json.dumps(body).encode()
    urllib.request.urlopen(f"{metadata}/_emulator/{order}", data).close()


def _say(*words: Any) -> None:  # noqa: ANN401 - JSON
    print(json.dumps(words), flush=True)  # noqa: T201 - its output


if __name__ == "__main__":
    main(*sys.argv[1:])
