"""The nodes of a job divide what its storage account takes in."""

from dataclasses import replace
from pathlib import Path

import pytest

from trainer.contract import PROTOCOL, Generation, Member, NodeConfig
from trainer.rundir import RunDir
from trainer.supervisor.blob.container import BlobAccess, JobContainer
from trainer.supervisor.clock import NodeClock, NodeLimits
from trainer.supervisor.control.launch import NodeWorld
from trainer.supervisor.report.heartbeat_reports import HeartbeatReports
from trainer.supervisor.upload.uploads import SaveUploads

CONFIG = NodeConfig(
    protocol=PROTOCOL,
    service_url="http://service",
    attempt_id="att-test",
    bootstrap_token="token",
    accelerator="cuda",
    processes_per_node=8,
)


def uploads(nodes: int, limits: NodeLimits, folder: Path) -> SaveUploads:
    members = tuple(
        Member(node_id=f"n{n}", vm_id=f"n{n}", address="127.0.0.1", node_rank=n)
        for n in range(nodes)
    )
    generation = Generation(
        number=1,
        job_id="job-test",
        attempt_id="att-test",
        members=members,
        processes_per_node=8,
        master_address="127.0.0.1",
        master_port=29500,
        checkpoint=None,
        run_spec_sha256="",
    )
    world = NodeWorld(
        generation=generation, member=members[0], folder=RunDir(folder), logs=folder / "logs"
    )
    container = JobContainer(BlobAccess(), "https://account.blob.core.windows.net/job?sig=none")
    return SaveUploads(
        world, container, HeartbeatReports(), limits, NodeClock(), _nothing, lambda _: ()
    )


@pytest.mark.parametrize(
    ("nodes", "gbps", "rate"),
    [(1, 60, 0.9e9), (8, 60, 0.9e9), (16, 60, 7.5e9 / 16), (3, 25, 0.9e9), (8, 25, 3.125e9 / 8)],
)
def test_all_nodes_together_send_no_more_than_the_account_takes(
    tmp_path: Path, nodes: int, gbps: float, rate: float
) -> None:
    made = uploads(nodes, replace(NodeLimits(), ingress=gbps * 1e9 / 8), tmp_path)

    assert made.rate_limit == rate
    assert nodes * made.rate_limit <= gbps * 1e9 / 8


def test_another_limit_reaches_the_node() -> None:
    small = replace(CONFIG, storage_ingress=3.125e9)

    assert NodeConfig.from_json(small.to_json()) == small


async def _nothing() -> None:
    """Grants last."""
