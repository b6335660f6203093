"""Our supervisor's uploads, commits and downloads as a process of their own, without a service.

`python -m bench.checkpoint.ranks.node CASE.json`. Standard input: "load NUMBER" brings what the
ranks read of what was committed under that step, and is answered with "loaded" once all of it is
there; its end means that the trainer is gone.
"""

import asyncio
import hashlib
import math
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from azure.storage.blob import ContainerClient

from bench.checkpoint.case import Case
from bench.checkpoint.ranks.spec import SPEC
from trainer.contract import HEAD, RUN_SPEC, Committed, Generation, Head, Member
from trainer.rundir import RunDir
from trainer.supervisor.blob.container import BlobAccess, JobContainer
from trainer.supervisor.clock import NodeClock, NodeLimits
from trainer.supervisor.control.launch import NodeWorld
from trainer.supervisor.control.stop_requests import StopRequests
from trainer.supervisor.input.cache import InputCache
from trainer.supervisor.machine.memory_files import MemoryFolder
from trainer.supervisor.report.heartbeat_reports import HeartbeatReports
from trainer.supervisor.upload.uploads import SaveUploads

SPEC_SHA256 = hashlib.sha256(b"bench").hexdigest()
GENERATION = 1


class Told(HeartbeatReports):
    """Tells the ranks as well, by a file."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def add_committed(self, entries: Sequence[Committed]) -> None:
        """HEAD names these."""
        super().add_committed(entries)
        for entry in entries:
            path = committed_file(self._folder, entry.step)
            part = path.with_suffix(".part")
            part.write_text(entry.to_json())
            part.replace(path)


def committed_file(folder: Path, number: int) -> Path:
    """Holds the entry of HEAD, once there is one."""
    return folder / f"committed-{number}.json"


def memory_of(folder: Path) -> Path:
    """What this machine has of files that are memory; else they lie on the disk."""
    shared = Path("/dev/shm")  # noqa: S108 - as on a node
    return shared / f"rekindle-{folder.name}" if shared.is_dir() else folder / "in-memory"


async def work(case: Case) -> None:
    """Upload and commit whatever the ranks save, until standard input ends."""
    folder, clock = Path(case.folder), NodeClock()
    limits = NodeLimits(
        upload_rate=math.inf, ingress=math.inf
    )  # as in the last seconds of a machine
    access = BlobAccess()
    container = JobContainer(access, case.url)
    wishes = StopRequests(limits, clock)
    uploads = SaveUploads(
        _world(case), container, Told(folder), limits, clock, _nothing, lambda _: ()
    )
    MemoryFolder(memory_of(folder)).assign_folder(RunDir(folder), GENERATION)
    working = asyncio.ensure_future(uploads.run_to_end(wishes))
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        number = int(line.split()[1])
        entry = Committed.from_json(committed_file(folder, number).read_bytes())
        await _load(case, container, entry)
        print("loaded", flush=True)
    wishes.trainer_ended(ended_well=True)
    await working
    access.close()


async def _load(case: Case, container: JobContainer, entry: Committed) -> None:
    """Into memory of its own: what the ranks have saved here must not be found."""
    folder, ranks = RunDir(Path(case.folder)), range(case.ranks)
    memory = MemoryFolder(memory_of(folder.root) / "loaded")
    cache = InputCache(folder.root / "cache", memory, container, case.ranks)
    await cache.link_checkpoint(entry, folder, case.ranks, ranks)
    await cache.serve_tensor_blocks(entry, folder, case.ranks, ranks, _once)


async def _once(work: Callable[[], Awaitable[None]]) -> None:
    """The sink is never away."""
    await work()


def _world(case: Case) -> NodeWorld:
    member = Member(node_id="n", vm_id="v", address="127.0.0.1", node_rank=0)
    generation = Generation(
        number=GENERATION,
        job_id="bench",
        attempt_id="bench",
        members=(member,),
        processes_per_node=case.ranks,
        master_address="127.0.0.1",
        master_port=0,
        checkpoint=None,
        run_spec_sha256=SPEC_SHA256,
    )
    folder = Path(case.folder)
    return NodeWorld(generation=generation, member=member, folder=RunDir(folder), logs=folder)


async def _nothing() -> None:
    """Grants do not run out here."""


def main() -> int:
    """HEAD and run spec first, as the service has them ready."""
    case = Case.read(Path(sys.argv[1]))
    if not case.load_only:
        with ContainerClient.from_container_url(case.url) as owner:
            owner.upload_blob(RUN_SPEC, SPEC.to_json(), overwrite=True)
            owner.upload_blob(HEAD, Head(generation=GENERATION).to_json(), overwrite=True)
    asyncio.run(work(case))
    return 0


if __name__ == "__main__":
    sys.exit(main())
