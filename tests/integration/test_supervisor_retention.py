"""What is left in HEAD and in Blob after many commits, and after a sweep; on a real Azurite."""

from dataclasses import replace
from pathlib import Path

from service.db.retention import Due
from service.reconciler.retention import CLOCKS, GRACE, collect
from service.storage.azure import AzureBlobStore
from tests.azurite import Azurite
from tests.standin_trainer import save
from tests.supervised import make_job
from trainer.contract import RUN_SPEC, Committed, Generation, Member, RunSpec, checkpoint_path
from trainer.rundir import RunDir
from trainer.supervisor.blobs import Access, JobContainer
from trainer.supervisor.clock import Clock
from trainer.supervisor.commit import Committer
from trainer.supervisor.outbox import Outbox

LOSSES = {10: 0.9, 20: 0.1, 30: 0.5, 40: 0.4, 50: 0.3}
GENERATION = Generation(
    number=1,
    job_id="job-test",
    attempt_id="att-test",
    members=(Member(node_id="one", vm_id="one", address="127.0.0.1", node_rank=0),),
    processes_per_node=1,
    master_address="127.0.0.1",
    master_port=29500,
    checkpoint=None,
    run_spec_sha256="",
)


async def test_a_job_keeps_what_its_run_spec_says_and_what_the_generation_started_from(
    azurite: Azurite, tmp_path: Path
) -> None:
    with azurite.container("job") as client, azurite.container("inputs") as inputs:
        job = make_job(azurite, client, inputs)
        job.write_head(job.head().fenced(1))
        asked = replace(RunSpec.from_json(job.spec), keep_checkpoints=1, milestone_every_steps=25)
        client.upload_blob(RUN_SPEC, asked.to_json(), overwrite=True)
        access = Access()
        container = JobContainer(access, job.grants.job)
        first = await _committed(container, RunDir(tmp_path), GENERATION, 10)
        later = replace(GENERATION, checkpoint=first)
        for step in (20, 30, 40, 50):
            await _committed(container, RunDir(tmp_path), later, step)
        access.close()

        head = job.head()
        kept = {c.step: head.kept_as(c) for c in head.checkpoints}
        assert kept == {10: "recent", 20: "best", 30: "milestone", 50: "milestone"}
        assert f"{first.path}/manifest.json" in job.names("checkpoints/")
        assert job.names(checkpoint_path(40, "g1")) == []


async def _committed(
    container: JobContainer, folder: RunDir, generation: Generation, step: int
) -> Committed:
    """Save, send, commit, and delete what HEAD has let go of."""
    committer = Committer(container, generation, Clock(), valid_loss=LOSSES.get)
    save(folder, generation, 0, step, checkpoint_path(step, "g1"), 1, "periodic")
    while sent := await Outbox(container, folder, range(1)).send_next():
        committer.expect(sent)
    (entry,) = await committer.look()
    await committer.delete_dropped()
    return entry


async def test_what_a_save_has_left_is_deleted_and_what_head_names_is_not(
    azurite: Azurite, tmp_path: Path
) -> None:
    with azurite.container("job") as client, azurite.container("inputs") as inputs:
        job = make_job(azurite, client, inputs)
        job.write_head(job.head().fenced(1))
        access, store = Access(), AzureBlobStore(azurite.connection_string)
        container, folder = JobContainer(access, job.grants.job), RunDir(tmp_path)
        kept = await _committed(container, folder, GENERATION, 10)
        save(folder, GENERATION, 0, 20, checkpoint_path(20, "torn"), 2, "periodic")
        torn = await Outbox(container, folder, range(1)).send_next()
        job.write_head(job.head().fenced(2))
        written = client.get_blob_client(f"{kept.path}/manifest.json").get_blob_properties()
        next_opened = written.last_modified + 2 * CLOCKS
        due = Due(
            job_id=client.container_name,
            is_over=False,
            newest=2,
            generation=2,
            opened_at=next_opened,
            loaded="",
        )
        bytes_left = sum(b.size for b in client.list_blobs(checkpoint_path(20, "torn")))
        early = await collect(store, due, next_opened)
        freed = await collect(store, due, next_opened + GRACE)
        await store.close()
        access.close()

        assert torn is not None
        assert early.freed == 0
        assert freed.freed == bytes_left > 0
        assert job.names(torn.path) == []
        assert len(job.names(kept.path)) == 3
