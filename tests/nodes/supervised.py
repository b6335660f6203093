"""A job in Azurite, a scripted service, and real supervisors with a stand-in trainer."""

import asyncio
import hashlib
import json
import os
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from azure.storage.blob import ContainerClient

from tests.azurite import Azurite
from tests.nodes.scripted_service import ScriptedNode, ScriptedService, serving
from tests.unit.trainer.process.trainer_spec import SPEC
from trainer.contract import (
    HEAD,
    PROTOCOL,
    RUN_SPEC,
    Committed,
    DirectiveKind,
    Generation,
    Grants,
    Head,
    InputFile,
    Member,
    NodeConfig,
    NodePhase,
    PinnedModel,
    RunSpec,
)
from trainer.supervisor.blob.container import BlobAccess
from trainer.supervisor.clock import NodeClock, NodeLimits
from trainer.supervisor.context import SupervisorContext
from trainer.supervisor.control.launch import CONVERTER, Command, NodeWorld, TrainerLauncher
from trainer.supervisor.control.node_state import NodeState
from trainer.supervisor.machine.health import HealthCheck
from trainer.supervisor.machine.memory_files import MemoryFolder
from trainer.supervisor.machine.metadata import Metadata
from trainer.supervisor.report.service_client import ServiceClient
from trainer.supervisor.supervisor import Supervisor

STANDIN = Path(__file__).with_name("standin_trainer.py")
ROOT = Path(__file__).parents[2]
ATTEMPT = "att-test"

ALONE = Generation(
    number=1,
    job_id="job-test",
    attempt_id=ATTEMPT,
    members=(Member(node_id="one", vm_id="one", address="127.0.0.1", node_rank=0),),
    processes_per_node=1,
    master_address="127.0.0.1",
    master_port=29500,
    checkpoint=None,
    run_spec_sha256="",
)
QUICK = replace(
    NodeLimits(),
    heartbeat=0.5,
    long_poll=2.0,
    log_flush=0.1,
    notice_poll=0.05,
    poll_interval=0.03,
    retry=0.5,
    save=8.0,
    notice=6.0,
    save_margin=2.0,
    upload_margin=1.0,
    uploads=10.0,
    uploads_after_kill=5.0,
    peers=8.0,
    peers_after_kill=0.3,
)


@dataclass
class Job:
    """A job: its container, its inputs, its generations."""

    azurite: Azurite
    container: ContainerClient
    grants: Grants
    spec: bytes
    processes_per_node: int = 1

    def head(self) -> Head:
        """Return the current HEAD."""
        return Head.from_json(self.container.download_blob(HEAD).readall())

    def newest(self) -> Committed:
        """Return the newest checkpoint in HEAD; there must be one."""
        newest = self.head().newest
        assert newest is not None
        return newest

    def write_head(self, head: Head) -> None:
        """Overwrite HEAD, as the service may."""
        self.container.upload_blob(HEAD, head.to_json().encode(), overwrite=True)

    def ask(self, **changes: object) -> None:
        """Change the run spec."""
        self.spec = json.dumps(json.loads(self.spec) | changes).encode()
        self.container.upload_blob(RUN_SPEC, self.spec, overwrite=True)

    def names(self, prefix: str = "") -> list[str]:
        """Return the names of all blobs with a prefix."""
        return [b.name for b in self.container.list_blobs(name_starts_with=prefix)]

    def text(self, name: str) -> str:
        """Return the text of a blob."""
        return self.container.download_blob(name).readall().decode()

    def open(
        self, number: int, nodes: Sequence[ScriptedNode], checkpoint: Committed | None = None
    ) -> Generation:
        """Fence HEAD for a new generation of these nodes, and return the generation."""
        self.write_head(self.head().fenced(number))
        members = tuple(
            Member(node_id=n.node_id, vm_id=n.node_id, address=n.address, node_rank=rank)
            for rank, n in enumerate(nodes)
        )
        return Generation(
            number=number,
            job_id="job-test",
            attempt_id=ATTEMPT,
            members=members,
            processes_per_node=self.processes_per_node,
            master_address=nodes[0].address,
            master_port=29500,
            checkpoint=checkpoint,
            run_spec_sha256=hashlib.sha256(self.spec).hexdigest(),
        )


def make_job(azurite: Azurite, container: ContainerClient, inputs: ContainerClient) -> Job:
    """Create a job's container with a run spec and an empty HEAD, and its inputs in another one."""
    blobs = {"model.safetensors": b"weights" * 5000, "train.jsonl": b'{"messages": []}\n' * 10}
    files = {}
    for name, data in blobs.items():
        inputs.upload_blob(name, data)
        digest = hashlib.sha256(data).hexdigest()
        path = f"{inputs.container_name}/{name}"
        files[name] = InputFile(path=path, size=len(data), sha256=digest)
    spec = run_spec(files["model.safetensors"], files["train.jsonl"]).to_json().encode()
    container.upload_blob(RUN_SPEC, spec)
    container.upload_blob(HEAD, Head(generation=0).to_json().encode())
    grants = Grants(
        job=azurite.container_sas(container.container_name),
        inputs={f.path: azurite.blob_sas(inputs.container_name, name) for name, f in files.items()},
        expires_at=0.0,
    )
    return Job(azurite, container, grants, spec)


def run_spec(model: InputFile, data: InputFile) -> RunSpec:
    """Return a run spec with these inputs."""
    base = PinnedModel(name="tiny", revision="r1", files=(model,))
    return replace(SPEC, job_id="job-test", base_model=base, training_file=data)


@dataclass
class Scene:
    """A service, a job, and the supervisors that a test starts."""

    service: ScriptedService
    job: Job
    folder: Path
    access: BlobAccess
    converter: Sequence[str] = CONVERTER  # command that converts starting checkpoints
    health: HealthCheck = field(default_factory=HealthCheck)  # of every machine; no findings
    modes: dict[str, str] = field(default_factory=dict)  # mode of the stand-in trainer, by node id
    supervisors: dict[str, Supervisor] = field(default_factory=dict)
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def start(
        self, node: ScriptedNode, *, limits: NodeLimits = QUICK, clock: NodeClock | None = None
    ) -> Path:
        """Start a supervisor on a node and return its work folder."""
        work = self.folder / node.node_id
        work.mkdir(exist_ok=True)
        command = standin(lambda: self.modes.get(node.node_id, "train"), self.folder)
        supervising = self._supervise(node, work, limits, command, clock or NodeClock())
        task = asyncio.create_task(supervising)
        self.tasks[node.node_id] = task
        return work

    async def run_one(
        self, mode: str = "", *, limits: NodeLimits = QUICK, clock: NodeClock | None = None
    ) -> ScriptedNode:
        """Start generation 1 with the node "one" alone; set the mode of its trainer if given."""
        if mode:
            self.modes["one"] = mode
        node = self.service.add("one")
        self.start(node, limits=limits, clock=clock)
        await self.generation(node)
        return node

    async def generation(self, *nodes: ScriptedNode, number: int = 1) -> Generation:
        """Open a generation on the newest checkpoint and direct its members to start it."""
        generation = self.job.open(number, nodes, self.job.head().newest)
        for node in nodes:
            await self.service.direct(node, DirectiveKind.START, generation)
        return generation

    def node(self, node_id: str) -> NodeState:
        """Return the state that a node has stored."""
        return NodeState.from_json((self.folder / node_id / "node.json").read_bytes())

    def progress(self, node_id: str) -> int:
        """Return the step that a node's newest trainer has reached."""
        newest = max((self.folder / node_id).glob("gen-*/progress"), default=None)
        return int(newest.read_text()) if newest else 0

    def checkpoint_files(self, node_id: str) -> list[str]:
        """Return the names of the ranks' files that a node holds of checkpoints."""
        folders = os.walk(self.folder / node_id / "memory" / "checkpoints")  # may vanish meanwhile
        return [name for *_, names in folders for name in names if name.startswith("rank-")]

    async def until(self, condition: Callable[[], object], seconds: float = 20.0) -> None:
        """Wait until ``condition`` is true; fail early when a supervisor has failed."""
        deadline = asyncio.get_running_loop().time() + seconds
        while not condition():
            for task in self.tasks.values():
                if task.done() and not task.cancelled():
                    task.result()
            assert asyncio.get_running_loop().time() < deadline, self.service.happened
            await asyncio.sleep(0.02)

    async def trains(self, *nodes: ScriptedNode) -> None:
        """Wait until all nodes report a training step of a running trainer."""
        await self.until(
            lambda: all(
                n.heartbeats
                and n.last_heartbeat.phase is NodePhase.RUNNING
                and n.last_heartbeat.step
                for n in nodes
            )
        )

    async def _supervise(
        self, node: ScriptedNode, work: Path, limits: NodeLimits, command: Command, clock: NodeClock
    ) -> None:
        config = node_config(self)
        mark = str(work)
        launcher = TrainerLauncher(
            command=command,
            environment={"PYTHONPATH": str(ROOT)},
            accelerator="cpu",
            mark=mark,
            converter=self.converter,
        )
        async with (
            ServiceClient(config, long_poll=limits.long_poll) as service,
            Metadata(f"{self.service.url}/vms/{node.node_id}") as metadata,
        ):
            context = SupervisorContext(
                config=config,
                boot_id=uuid.uuid4().hex,
                started_at=0.0,
                gpus=0,
                work=work,
                memory=MemoryFolder(work / "memory"),
                service=service,
                metadata=metadata,
                access=self.access,
                launcher=launcher,
                limits=limits,
                clock=clock,
                health=self.health,
            )
            self.supervisors[node.node_id] = Supervisor(context)
            await self.supervisors[node.node_id].run()


@asynccontextmanager
async def staged(service: ScriptedService, job: Job, folder: Path) -> AsyncIterator[Scene]:
    """Yield a scene; at its end stop all supervisors with their trainers."""
    access = BlobAccess()
    scene = Scene(service, job, folder, access)
    try:
        yield scene
    finally:
        for task in scene.tasks.values():
            task.cancel()
        await asyncio.gather(*scene.tasks.values(), return_exceptions=True)
        access.close()


def node_config(scene: Scene) -> NodeConfig:
    """Return the node config that cloud-init would write on every node."""
    return NodeConfig(
        protocol=PROTOCOL,
        service_url=scene.service.url,
        attempt_id=ATTEMPT,
        bootstrap_token="bootstrap",
        accelerator="cpu",
        processes_per_node=scene.job.processes_per_node,
    )


@asynccontextmanager
async def set_scene(azurite: Azurite, folder: Path) -> AsyncIterator[Scene]:
    """Yield a scene with a service and a job, without supervisors."""
    with azurite.container("job") as container, azurite.container("inputs") as inputs:
        job = make_job(azurite, container, inputs)
        async with (
            serving(ScriptedService(job.grants)) as service,
            staged(service, job, folder) as scene,
        ):
            yield scene


def standin(mode: Callable[[], str], common: Path) -> Command:
    """Return the command of a stand-in trainer; nodes agree through the folder ``common``."""

    def command(world: NodeWorld) -> Sequence[str]:
        return (
            sys.executable,
            str(STANDIN),
            mode(),
            str(world.folder.root),
            str(world.logs),
            str(common),
            str(world.ranks.start),
            str(len(world.ranks)),
        )

    return command
