"""What is kept of the model's own answers, and that a checkpoint forgets nothing of it."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.checkpoint.answers import (
    answers_name,
    read_answers,
    redistribute_answers,
    write_answers,
)
from trainer.checkpoint.index import FORMAT, RankIndex
from trainer.checkpoint.loader import CheckpointFiles
from trainer.checkpoint.rng_state import capture_rng
from trainer.contract import FileEntry
from trainer.rollout.experience import GradedAnswer, ReplayState
from trainer.state import RankIdentity

ME = RankIdentity(rank=1, local_rank=1, world_size=2, generation=2, run_spec_sha256="", nonce="")


def answer(sample: int, number: int = 0, born: int = 0, tokens: int = 3) -> GradedAnswer:
    """With numbers of its own for every token."""
    draw = np.random.default_rng([sample, number, born])
    return GradedAnswer(
        sample=sample,
        number=number,
        born=born,
        ids=draw.integers(0, 99, 2 + tokens).astype(np.int32),
        prompt=2,
        grade=float(draw.random()),
        advantage=float(draw.random()),
        behaviour=draw.random(tokens, dtype=np.float32),
        reference=draw.random(tokens if sample % 2 else 0, dtype=np.float32),
    )


def comparable(row: GradedAnswer) -> list[object]:
    """Return all members, arrays as bytes."""
    values = [getattr(row, f.name) for f in fields(row)]
    return [v.tobytes() if isinstance(v, np.ndarray) else v for v in values]


def index(rank: int) -> RankIndex:
    """Of a rank in a world of two."""
    return RankIndex(
        format=FORMAT,
        rank=rank,
        world_size=2,
        step=1,
        consumed_samples=8,
        optimizer_step=1,
        run_spec_sha256="",
        metrics=None,
        randomness=capture_rng(),
        fragments=(),
    )


def entry(path: Path) -> tuple[str, FileEntry]:
    """Return a file's name and its entry, as in the manifest."""
    return path.name, FileEntry(name=path.name, size=path.stat().st_size, etag="", crc64nvme="")


def names(rows: tuple[GradedAnswer, ...]) -> list[tuple[int, int]]:
    """Sample and number of each."""
    return [(row.sample, row.number) for row in rows]


@settings(deadline=None)  # it writes files
@given(st.lists(st.integers(0, 5), max_size=6), st.lists(st.integers(0, 9), max_size=6))
def test_what_is_written_is_read_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, waiting: list[int], replayed: list[int]
) -> None:
    path = tmp_path_factory.mktemp("answers") / "rank-00000.answers"
    state = ReplayState(
        tuple(answer(n, 1, tokens=n) for n in waiting), tuple(answer(n, 2) for n in replayed)
    )
    write_answers(state, path)
    state_read = read_answers(path)

    assert [comparable(row) for row in state_read.waiting] == [
        comparable(row) for row in state.waiting
    ]
    assert [comparable(row) for row in state_read.replay] == [
        comparable(row) for row in state.replay
    ]


def test_the_oldest_give_way_and_the_stale_are_dropped() -> None:
    start = ReplayState(replay=(answer(1, born=1), answer(2, born=5), answer(3, born=6)))
    after = start.after_step([answer(9, born=8)], consumed=10, oldest=4, capacity=2)

    assert names(after.replay) == [(3, 0), (9, 0)]


def test_without_a_capacity_nothing_is_kept() -> None:
    start = ReplayState(waiting=(answer(4), answer(8)))
    after = start.after_step([answer(4)], consumed=8, oldest=0, capacity=0)

    assert (names(after.waiting), names(after.replay)) == ([(8, 0)], [])


def test_what_is_drawn_follows_from_the_step_alone() -> None:
    store = ReplayState(replay=tuple(answer(n) for n in range(50)))
    first, second = (store.draw_replay(5, seed=7, step=3, rank=1) for _ in range(2))

    assert names(tuple(first)) == names(tuple(second))
    assert len(set(names(tuple(first)))) == 5
    assert len(set(names(tuple(store.draw_replay(99, 7, 3, 0))))) == 50
    assert names(tuple(first)) != names(tuple(store.draw_replay(5, seed=7, step=4, rank=1)))
    assert names(tuple(first)) != names(tuple(store.draw_replay(5, seed=7, step=3, rank=0)))


@given(st.integers(1, 4), st.integers(1, 4))
def test_another_world_has_every_old_answer_once_and_all_that_wait(before: int, after: int) -> None:
    parts = [
        ReplayState((answer(100 + rank),), tuple(answer(n, rank, born=n) for n in range(5)))
        for rank in range(before)
    ]
    redistributed = [redistribute_answers(parts, after, rank) for rank in range(after)]

    replay_names = [name for part in redistributed for name in names(part.replay)]
    assert sorted(replay_names) == [(n, rank) for n in range(5) for rank in range(before)]
    for part in redistributed:
        assert names(part.waiting) == [(100 + rank, 0) for rank in range(before)]
    # Every rank has them now, but each counts once.
    merged = redistribute_answers(redistributed, before, 0)
    assert names(merged.waiting) == [(100 + rank, 0) for rank in range(before)]


def test_with_a_smaller_micro_batch_a_rank_has_all_that_wait_and_its_own_old_answers(
    tmp_path: Path,
) -> None:
    for rank in range(2):
        own = ReplayState((answer(100 + rank),), (answer(rank), answer(10 + rank)))
        write_answers(own, tmp_path / answers_name(rank))
    checkpoint = CheckpointFiles(
        tmp_path, (index(0), index(1)), dict(map(entry, tmp_path.iterdir()))
    )
    unchanged = checkpoint.experience(ME, all_waiting=False)
    narrowed = checkpoint.experience(ME, all_waiting=True)

    assert names(unchanged.waiting) == [(101, 0)]
    assert names(narrowed.waiting) == [(100, 0), (101, 0)]
    assert names(narrowed.replay) == names(unchanged.replay) == [(1, 0), (11, 0)]
