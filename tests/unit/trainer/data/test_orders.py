"""Which sample is trained when, on which rank: shuffled, in proportion, or easy rows first."""

import json
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from math import ceil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.unit.trainer.model.tiny_tokenizer import tiny_tokenizer
from tests.unit.trainer.process.trainer_spec import ME, SPEC
from trainer.contract import Curriculum, Mix, RunSpec, micro_steps
from trainer.data import tokenizing
from trainer.data.batch import Batch
from trainer.data.file_batches import build_order
from trainer.data.order import CurriculumOrder, LengthMixOrder, micro_batch_samples, shuffled_row
from trainer.data.prefetch import BatchPrefetcher
from trainer.data.tokens import TokenizedFile, TokenizedOnDemand, TokenSource
from trainer.sample_data.tiny_chats import write_rankings, write_samples
from trainer.state import RankIdentity

LENGTHS = st.lists(st.integers(1, 40), min_size=2, max_size=60).map(np.array)
SEEDS = st.integers(0, 2**31 - 1)
SHARES = st.integers(1, 19).map(lambda n: n / 20)
TOKENIZER = tiny_tokenizer()
EASING = Curriculum(until_step=4, start_share=0.25)


def mixed(seed: int, tokens: NDArray[np.int64], share: float = 0.7) -> LengthMixOrder:
    return LengthMixOrder(seed, tokens, Mix(threshold_tokens=20, short_share=share))


def me(rank: int = 0, world: int = 1) -> RankIdentity:
    return replace(ME, rank=rank, world_size=world)


# --- Mixed lengths -----------------------------------------------------------------------------


@given(SEEDS, LENGTHS, SHARES)
def test_short_rows_have_their_share_of_every_beginning(
    seed: int, tokens: NDArray[np.int64], share: float
) -> None:
    assume(0 < (tokens <= 20).sum() < len(tokens))
    order = mixed(seed, tokens, share)

    shorts = np.cumsum([tokens[order.row(n)] <= 20 for n in range(150)])

    exact = [Fraction(share).limit_denominator(1000) * n for n in range(1, 151)]
    assert all(0 <= e - int(s) < 1 for s, e in zip(shorts, exact, strict=True))


@given(SEEDS, LENGTHS, SHARES)
def test_each_kind_goes_once_through_its_rows_before_one_comes_again(
    seed: int, tokens: NDArray[np.int64], share: float
) -> None:
    order, short = mixed(seed, tokens, share), set(np.flatnonzero(tokens <= 20))
    rows = [order.row(n) for n in range(200)]

    for kind in (short, set(range(len(tokens))) - short):
        of_kind = [row for row in rows if row in kind]
        assert (len(set(of_kind[: len(kind)])) == len(kind)) or len(of_kind) < len(kind)
        assert max(Counter(of_kind).values(), default=0) <= len(of_kind) // max(len(kind), 1) + 1


def test_the_mixed_order_is_the_one_of_yesterday() -> None:
    tokens = np.array([1, 30, 2, 3, 40, 4, 5, 50, 6, 7])

    assert [mixed(7, tokens).row(n) for n in range(12)] == [7, 5, 2, 1, 8, 0, 4, 6, 9, 3, 7, 6]


# --- Easy rows first ---------------------------------------------------------------------------


@given(SEEDS, st.integers(1, 200), st.integers(1, 30), st.integers(0, 8))
def test_a_step_takes_only_rows_that_are_easy_enough_for_it(
    seed: int, rows: int, batch: int, step: int
) -> None:
    order = CurriculumOrder(seed, np.zeros(rows), np.arange(rows)[::-1], EASING, batch)
    allowed = min(max(ceil(rows * (0.25 + 0.75 * min(step / 4, 1))), 1), rows)

    counts = Counter(order.row(step * batch + n) for n in range(batch))

    assert order.rows_allowed(step) == allowed
    if step < 4:
        assert min(counts) >= rows - allowed, "the last are the shortest"
        assert max(counts.values()) <= -(-batch // allowed)
    assert sum(counts.values()) == batch


@given(SEEDS, st.integers(1, 60), st.integers(1, 9))
def test_once_all_rows_are_allowed_an_epoch_goes_once_through_them(
    seed: int, rows: int, batch: int
) -> None:
    order = CurriculumOrder(seed, np.zeros(rows), np.arange(rows), EASING, batch)
    after = EASING.until_step * batch

    for epoch in range(3):
        first = after + epoch * rows
        assert sorted(order.row(first + n) for n in range(rows)) == list(range(rows))


def test_turns_weigh_more_than_tokens_and_what_is_equal_keeps_its_order() -> None:
    turns, tokens = np.array([4, 2, 2, 2, 6]), np.array([1, 9, 3, 3, 1])
    one_row = Curriculum(until_step=5, start_share=0.2)

    order = CurriculumOrder(3, turns, tokens, one_row, global_batch=2)

    steps = [{order.row(2 * step + n) for n in range(2)} for step in range(5)]
    assert steps[0] == {2}
    assert steps[1] == {2, 3}
    assert set.union(*steps[:3]) <= {1, 2, 3}
    assert set.union(*steps[:4]) <= {0, 1, 2, 3}


def test_the_eased_order_is_the_one_of_yesterday() -> None:
    order = CurriculumOrder(7, np.zeros(20), np.arange(20), EASING, global_batch=3)

    expected = "4 3 0 0 2 3 3 4 12 5 9 2 8 16 4 1 6 3"

    assert " ".join(str(order.row(n)) for n in range(18)) == expected


# --- Both --------------------------------------------------------------------------------------


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Chats of one to three questions."""
    path = tmp_path / "train.jsonl"
    write_samples(path, rows=30, seed=3)
    return path


MIXING = replace(SPEC, mix=Mix(threshold_tokens=40), global_batch=4)
EASY = replace(SPEC, curriculum=EASING, global_batch=4)


@pytest.mark.parametrize("spec", [MIXING, EASY])
def test_ranks_that_measure_a_share_each_agree_with_one_that_measures_all(
    spec: RunSpec, data: Path, tmp_path: Path
) -> None:
    fresh = TokenizedOnDemand(data, TOKENIZER, spec)
    tokenizing.write_tokens(fresh, tmp_path / "tokens.safetensors")
    cached = TokenizedFile(tmp_path / "tokens.safetensors")

    alone = ordered(spec, data, fresh, world=1)
    three = ordered(spec, data, cached, world=3)

    assert alone == three
    assert len(set(alone)) > 1


def ordered(spec: RunSpec, data: Path, source: TokenSource, world: int) -> list[int]:
    """Return the first 40 rows of the order, which adds up what each of the ranks has measured."""
    shares: list[NDArray[np.int64]] = []

    def kept(share: NDArray[np.int64]) -> NDArray[np.int64]:
        shares.append(share)
        return share

    for rank in range(world):
        build_order(spec, data, source, me(rank, world), kept)
    measured = len(shares) // world
    sums = iter([np.sum(shares[n::measured], axis=0) for n in range(measured)])
    order = build_order(spec, data, source, me(0, world), lambda _: next(sums))
    assert order is not None
    return [order(n) for n in range(40)]


def test_short_rows_are_those_whose_sequences_are_short_all_together(tmp_path: Path) -> None:
    path = tmp_path / "ranked.jsonl"
    write_rankings(path, rows=20, seed=1)
    spec = replace(MIXING, method="reward", answers_per_row=3, mix=Mix(threshold_tokens=60))
    source = TokenizedOnDemand(path, TOKENIZER, spec)
    lengths_of_ranks: list[NDArray[np.int64]] = []

    def kept(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        lengths_of_ranks.append(lengths)
        return lengths

    build_order(spec, path, source, me(), kept)

    assert lengths_of_ranks[0].tolist() == [
        sum(len(source[3 * r + n].ids) for n in range(3)) for r in range(20)
    ]


def test_a_feed_gives_out_the_rows_of_the_order(data: Path) -> None:
    source = TokenizedOnDemand(data, TOKENIZER, MIXING)
    order = build_order(MIXING, data, source, me(), lambda lengths: lengths)
    assert order is not None
    (first, second), _ = (BatchPrefetcher(source, 0, MIXING, me(), order).step(c) for c in (0, 4))

    rows = [json.loads(line) for line in data.read_text().splitlines()]
    answers = [rows[order(n)]["messages"][-1]["content"] for n in range(4)]
    ids = [row for batch in (first, second) for row in batch.ids.tolist()]
    assert all(s in TOKENIZER.decode(i) for s, i in zip(answers, ids, strict=True))


@pytest.mark.parametrize("world", [1, 2])
def test_the_rest_of_a_run_is_every_row_that_is_still_trained_once(data: Path, world: int) -> None:
    """Of steps 3 to 5, on all ranks together; ranks that have none left get empty batches."""
    spec = replace(MIXING, mix=None, total_steps=5, global_batch=4)
    source = TokenizedOnDemand(data, TOKENIZER, spec)
    ranks = [
        list(BatchPrefetcher(source, 0, spec, me(rank, world)).remaining_batches(8))
        for rank in range(world)
    ]

    expected = {shuffled_row(spec.seed, len(source), cursor) for cursor in range(8, 20)}
    ids = sorted(tuple(source[row].ids) for row in expected)
    rows = [row for batches in ranks for batch in batches for row in trained_rows(batch)]
    assert sorted(rows) == ids
    assert len({len(batches) for batches in ranks}) == 1


def trained_rows(batch: Batch) -> list[tuple[int, ...]]:
    """Their tokens without padding; rows that are all padding are nobody's."""
    assert batch.attention is not None
    masked = zip(batch.ids, batch.attention.bool(), strict=True)
    return [tuple(ids[mask].tolist()) for ids, mask in masked if mask.any()]


WORLDS = st.integers(1, 7)


@given(WORLDS, st.integers(1, 4), st.integers(1, 40), st.integers(0, 500))
def test_every_world_trains_exactly_the_same_samples_in_a_step(
    world: int, micro: int, batch: int, consumed: int
) -> None:
    ranks = [micro_batch_samples(consumed, batch, micro, world, rank) for rank in range(world)]

    samples = sorted(c for rank in ranks for step in rank for c in step)
    assert samples == list(range(consumed, consumed + batch))


@given(WORLDS, st.integers(1, 4), st.integers(1, 40))
def test_every_rank_runs_as_many_micro_steps_as_the_others(
    world: int, micro: int, batch: int
) -> None:
    ranks = [micro_batch_samples(0, batch, micro, world, rank) for rank in range(world)]

    assert {len(rank) for rank in ranks} == {micro_steps(batch, micro, world)}
    assert all(len(step) <= micro for rank in ranks for step in rank)


@given(st.integers(0, 2**31), st.integers(1, 200), st.integers(0, 5))
def test_an_epoch_goes_once_through_all_rows(seed: int, rows: int, epoch: int) -> None:
    order = [shuffled_row(seed, rows, cursor) for cursor in range(epoch * rows, (epoch + 1) * rows)]

    assert sorted(order) == list(range(rows))


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    first = [shuffled_row(1, 50, c) for c in range(50)]

    assert [shuffled_row(1, 50, c) for c in range(50, 100)] != first
    assert [shuffled_row(2, 50, c) for c in range(50)] != first


def test_the_order_is_the_one_of_yesterday() -> None:
    assert [shuffled_row(7, 10, c) for c in range(12)] == [8, 4, 1, 6, 3, 2, 7, 5, 9, 0, 3, 9]
