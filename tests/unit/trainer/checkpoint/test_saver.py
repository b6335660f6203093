"""A rank's part of a save is whole or has no record; the memory that it is copied into."""

import resource
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.nodes.scripted_node import metrics
from tests.system.exactness.worlds import SPEC_SHA256, place_checkpoint
from tests.unit.trainer.process.trainer_spec import ME
from trainer.checkpoint.checksum import describe_file
from trainer.checkpoint.host_buffers import SaveSlot, make_slots
from trainer.checkpoint.index import index_name
from trainer.checkpoint.loader import load_checkpoint, open_checkpoint
from trainer.checkpoint.rng_state import capture_rng
from trainer.checkpoint.saver import Saver, give_up_save, is_given_up
from trainer.contract import BLOCK, StepMetrics, checkpoint_path
from trainer.engine.loss_spikes import LossHistory
from trainer.process.journal import Journal
from trainer.rundir import RunDir, rank_record, tensors_name
from trainer.state import RankIdentity, TrainingState


@dataclass
class Replicated:
    """As much of DeepSpeed's engine at stage 0 as saving and loading use."""

    global_rank: int
    world_size: int
    module: Any = field(default_factory=lambda: torch.nn.Linear(3, 5))
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.AdamW(self.module.parameters(), lr=0.1)
        self.global_steps = self.global_samples = self.micro_steps = 0

    def zero_optimization_stage(self) -> int:
        return 0

    def gradient_accumulation_steps(self) -> int:
        return 4

    def train_batch_size(self) -> int:
        return 8

    def update(self) -> None:
        self.module(torch.ones(3)).sum().backward()
        self.optimizer.step()


def identity(rank: int, world_size: int) -> RankIdentity:
    return replace(
        ME,
        rank=rank,
        local_rank=rank,
        world_size=world_size,
        run_spec_sha256=SPEC_SHA256,
        nonce="0badcafe",
    )


STATE = TrainingState(
    step=3,
    consumed_samples=24,
    tokens=99,
    valid_loss_before=2.5,
    losses=LossHistory(losses=(2.5, 2.25), above=1),
)
PATH = checkpoint_path(3, "0badcafe")


def save(rundir: RunDir, world_size: int = 2) -> Replicated:
    """Save the same state on every rank, as replicas do."""
    torch.manual_seed(1)
    first = Replicated(0, world_size)
    for rank in range(world_size):
        engine = replace(first, global_rank=rank) if rank else first
        engine.optimizer = first.optimizer
        if rank == 0:
            engine.update()
        saver = Saver(engine, rundir, identity(rank, world_size))
        saver.save(STATE, capture_rng(), "stop")
        saver.wait()
    return first


def test_two_ranks_save_and_one_of_another_world_loads(tmp_path: Path) -> None:
    rundir = RunDir(tmp_path)
    saved = save(rundir)
    place_checkpoint(rundir.save_folder(PATH), rundir.checkpoint)
    alone = Replicated(0, 1)

    state = load_checkpoint(
        alone, open_checkpoint(rundir.checkpoint, SPEC_SHA256), 7, identity(0, 1)
    )

    assert state == replace(STATE, experience=state.experience)
    assert (alone.global_steps, alone.global_samples, alone.micro_steps) == (3, 24, 12)
    for loaded_parameter, saved_parameter in zip(
        alone.module.parameters(), saved.module.parameters(), strict=True
    ):
        assert torch.equal(loaded_parameter, saved_parameter)
        loaded_state = alone.optimizer.state[loaded_parameter]
        saved_state = saved.optimizer.state[saved_parameter]
        assert torch.equal(loaded_state["exp_avg"], saved_state["exp_avg"])
        assert torch.equal(loaded_state["exp_avg_sq"], saved_state["exp_avg_sq"])
        assert loaded_state["step"] == saved_state["step"] == 1


def test_a_save_that_breaks_half_way_has_no_record_and_is_told(tmp_path: Path) -> None:
    rundir = RunDir(tmp_path)
    folder = rundir.save_folder(PATH)
    (folder / index_name(0)).mkdir(parents=True)  # where the index would go
    saver = Saver(Replicated(0, 1), rundir, identity(0, 1))
    assert not saver.busy, "nothing is saved yet"
    saver.save(STATE, capture_rng(), "stop")

    with pytest.raises(IsADirectoryError):
        saver.wait()

    assert (folder / tensors_name(0)).exists()
    assert not (folder / rank_record(0)).exists()


@pytest.mark.parametrize("is_cut", [False, True], ids=["missing", "cut"])
@pytest.mark.parametrize("name", [tensors_name(1), index_name(0)])
def test_a_checkpoint_with_a_file_that_is_missing_or_cut_is_refused(
    tmp_path: Path, name: str, *, is_cut: bool
) -> None:
    rundir = RunDir(tmp_path)
    save(rundir)
    place_checkpoint(rundir.save_folder(PATH), rundir.checkpoint)
    content = (rundir.checkpoint / name).read_bytes()
    (rundir.checkpoint / name).unlink()  # it may be a link to the slot
    if is_cut:
        (rundir.checkpoint / name).write_bytes(content[:-4])

    with pytest.raises(ValueError, match=f"{name} is missing or cut; fetch it again"):
        load_checkpoint(
            Replicated(0, 1), open_checkpoint(rundir.checkpoint, SPEC_SHA256), 7, identity(0, 1)
        )


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    rundir = RunDir(tmp_path)
    save(rundir)
    place_checkpoint(rundir.save_folder(PATH), rundir.checkpoint)

    with pytest.raises(ValueError, match="belongs to another run spec"):
        open_checkpoint(rundir.checkpoint, "6" * 64)


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file may grow beyond ``size`` bytes; the kernel says so as it does of a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def large() -> Replicated:
    """Return an engine whose model's state takes about 20 kB."""
    return Replicated(0, 1, module=torch.nn.Linear(30, 50))


def test_on_a_full_disk_a_save_is_given_up_and_the_next_one_is_whole(tmp_path: Path) -> None:
    rundir = RunDir(tmp_path)
    (rundir.checkpoint).mkdir()
    saver = Saver(large(), rundir, identity(0, 1))
    folder, note = rundir.save_folder(PATH), rundir.skipped / rank_record(0)
    with room_for(2_000):
        saver.save(STATE, capture_rng(), "periodic")
        saver.wait()

        assert not folder.is_dir()
        assert "larger local disk" in note.read_text()
        assert not rundir.checkpoint.exists()  # what was loaded went first, to make room
    later = replace(STATE, step=4)
    saver.save(later, capture_rng(), "periodic")
    saver.wait()

    assert (rundir.save_folder(checkpoint_path(4, "0badcafe")) / rank_record(0)).exists()
    assert not note.exists()


def test_what_one_rank_gives_up_the_other_ranks_of_its_node_give_up_too(tmp_path: Path) -> None:
    rundir = RunDir(tmp_path)
    with room_for(2_000):
        saver = Saver(large(), rundir, identity(0, 2))
        saver.save(STATE, capture_rng(), "periodic")
        saver.wait()
    second = Saver(Replicated(1, 2), rundir, identity(1, 2))
    second.save(STATE, capture_rng(), "periodic")
    second.wait()

    assert not rundir.save_folder(PATH).is_dir()


def test_a_save_that_is_given_up_is_gone_though_another_rank_still_writes_into_it(
    tmp_path: Path,
) -> None:
    for turn in range(20):
        folder = tmp_path / str(turn) / "outbox" / "checkpoints-step-00000003-n"
        folder.mkdir(parents=True)
        with ThreadPoolExecutor(1) as executor:
            writing = executor.submit(write_until_given_up, folder)
            while not any(folder.iterdir()):
                assert not writing.done()
            give_up_save(folder)
            assert not folder.is_dir()
            assert is_given_up(folder, writing.result())
        assert list(folder.parent.iterdir()) == [folder]
        assert list(folder.parent.parent.iterdir()) == [folder.parent]


def write_until_given_up(folder: Path) -> OSError:
    """Another rank at work; why it ended."""
    for number in count():
        try:
            (folder / str(number)).touch()
        except OSError as e:
            return e
    raise AssertionError("it counts for ever")


def test_a_save_that_cannot_be_begun_was_not_given_up_by_another_rank(tmp_path: Path) -> None:
    assert not is_given_up(tmp_path / "save", PermissionError())


def test_measurements_wait_for_room_on_the_disk(tmp_path: Path) -> None:
    rundir = RunDir(tmp_path)
    journal = Journal(rundir, identity(0, 1))
    with room_for(300):
        for step in range(1, 6):
            journal.metrics(metrics(step))
            journal.progress(step)
    content = rundir.metrics.read_bytes()
    assert 0 < len(content) <= 300
    assert content.endswith(b"\n")
    journal.metrics(metrics(6))

    lines = rundir.metrics.read_text().splitlines()
    assert [StepMetrics.from_json(line).step for line in lines] == [1, 2, 3, 4, 5, 6]


SIZES = {"x|master": 3, "y": 4}


def slots_of(root: Path, sizes: dict[str, int]) -> list[SaveSlot]:
    return make_slots(RunDir(root), 2, sizes, pinned=False)


def test_a_slot_is_a_safetensors_file_of_what_was_copied_into_it(tmp_path: Path) -> None:
    slot = slots_of(tmp_path, SIZES)[0]
    slot.flat.copy_(torch.arange(7))
    saved = slot.link_into(tmp_path, 2)

    path = tmp_path / tensors_name(2)
    tensors = load_file(path)
    assert tensors["x|master"].tolist() == [0, 1, 2]
    assert tensors["y"].tolist() == [3, 4, 5, 6]
    described = replace(describe_file(path, path.name), sha256="")  # of blocks, once it is uploaded
    assert replace(saved, block_size=0, blocks=()) == described
    assert (saved.block_size, saved.blocks) == (BLOCK, (saved.crc64nvme,))


def test_a_rank_that_owns_nothing_saves_an_empty_file(tmp_path: Path) -> None:
    slots_of(tmp_path, {})[0].link_into(tmp_path, 2)

    assert load_file(tmp_path / tensors_name(2)) == {}


def test_a_slot_is_taken_until_its_save_has_left_the_outbox(tmp_path: Path) -> None:
    folder = tmp_path / "outbox"
    folder.mkdir()
    first, second = slots_of(tmp_path, SIZES)
    first.link_into(folder, 2)
    free = first.is_free, second.is_free
    folder.rename(tmp_path / "sent")

    assert free == (False, True)
    assert first.is_free


def test_a_full_memory_is_told_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with room_for(100), pytest.raises(OSError, match="File too large"):
        slots_of(tmp_path, SIZES)

    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []
