"""The supervisor's uploads, commits and downloads as a process of their own, without a service.

Run it with `python -m bench.checkpoint.ranks.node CASE.json`. The line "load NUMBER" on standard
input downloads the blocks that the ranks request of the checkpoint of that step, and the answer
is the line "loaded". The end of standard input means that the trainer has ended.
"""

import asyncio
import hashlib
import math
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from azure.storage.blob import ContainerClient

from bench.checkpoint.case import CheckpointCase
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


class CommitReports(HeartbeatReports):
    """Heartbeat reports that also write committed entries to files for the ranks."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def add_committed(self, entries: Sequence[Committed]) -> None:
        """Record the entries that HEAD now names, and write each to its file."""
        super().add_committed(entries)
        for entry in entries:
            path = committed_file(self._folder, entry.step)
            part_path = path.with_suffix(".part")
            part_path.write_text(entry.to_json())
            part_path.replace(path)


def committed_file(folder: Path, number: int) -> Path:
    """Return the file that holds HEAD's entry of this step once it is committed."""
    return folder / f"committed-{number}.json"


def memory_of(folder: Path) -> Path:
    """Return a folder in shared memory, or on the disk where the system has no shared memory."""
    shared = Path("/dev/shm")  # noqa: S108 - as on a node
    return shared / f"rekindle-{folder.name}" if shared.is_dir() else folder / "in-memory"


async def work(case: CheckpointCase) -> None:
    """Upload and commit the ranks' saves until standard input ends."""
    folder, clock = Path(case.folder), NodeClock()
    limits = NodeLimits(upload_rate=math.inf, ingress=math.inf)  # as after an eviction notice
    access = BlobAccess()
    container = JobContainer(access, case.url)
    stop_requests = StopRequests(limits, clock)
    uploads = SaveUploads(
        _world(case), container, CommitReports(folder), limits, clock, _nothing, lambda _: ()
    )
    MemoryFolder(memory_of(folder)).assign_folder(RunDir(folder), GENERATION)
    uploading = asyncio.ensure_future(uploads.run_to_end(stop_requests))
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        number = int(line.split()[1])
        entry = Committed.from_json(committed_file(folder, number).read_bytes())
        await _load(case, container, entry)
        print("loaded", flush=True)
    stop_requests.record_trainer_end(ended_well=True)
    await uploading
    access.close()


async def _load(case: CheckpointCase, container: JobContainer, entry: Committed) -> None:
    """Download a checkpoint into a separate folder, so that no local save is reused."""
    folder, ranks = RunDir(Path(case.folder)), range(case.ranks)
    memory = MemoryFolder(memory_of(folder.root) / "loaded")
    cache = InputCache(folder.root / "cache", memory, container, case.ranks)
    await cache.link_checkpoint(entry, folder, case.ranks, ranks)
    await cache.serve_tensor_blocks(entry, folder, case.ranks, ranks, _once)


async def _once(work: Callable[[], Awaitable[None]]) -> None:
    """Run the work without retries, because the sink is always available."""
    await work()


def _world(case: CheckpointCase) -> NodeWorld:
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
    """Renew nothing, because grants do not expire here."""


def main() -> int:
    """Write HEAD and the run spec, as the service does, and then serve the ranks."""
    case = CheckpointCase.read(Path(sys.argv[1]))
    if not case.load_only:
        with ContainerClient.from_container_url(case.url) as owner:
            owner.upload_blob(RUN_SPEC, SPEC.to_json(), overwrite=True)
            owner.upload_blob(HEAD, Head(generation=GENERATION).to_json(), overwrite=True)
    asyncio.run(work(case))
    return 0


if __name__ == "__main__":
    sys.exit(main())
