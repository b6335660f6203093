"""The tokens that a plan counts for a step, held against the trainer's own batches."""

import math
from statistics import NormalDist, fmean

import numpy as np
import pytest

from rendering.report import QUANTILES
from service.domain.performance.padding import (
    computed_tokens,
    cut_lengths,
    estimate_lengths,
    mixed_lengths,
)
from trainer.contract import Mix
from trainer.data.order import LengthMixOrder, micro_batch_samples, shuffled_row

ROWS = 640
# Chats are about log-normal; these have twice the mean at the ninth decile.
CHATS = [round(200 * math.exp(NormalDist().inv_cdf((n + 0.5) / ROWS) * 0.8)) for n in range(ROWS)]
STEPS = 150


def ranks_of(lengths: list[int]) -> tuple[int, ...]:
    """Return the lengths at evenly spaced ranks, as the check of rows stores them."""
    ranked = sorted(lengths)
    return tuple(ranked[int((r + 0.5) * len(ranked) / QUANTILES)] for r in range(QUANTILES))


def trained_by(micro: int, world: int, rounds: int, *, packing: bool) -> float:
    """Tokens of a sequence on the slowest rank, by the rows that the trainer takes together."""
    batch = micro * world * rounds
    slowest = []
    for step in range(STEPS):
        ranks = []
        for rank in range(world):
            micros = [
                [CHATS[shuffled_row(7, ROWS, cursor)] for cursor in cursors_of_micro]
                for cursors_of_micro in micro_batch_samples(step * batch, batch, micro, world, rank)
            ]
            ranks.append(sum(sum(m) if packing else len(m) * max(m) for m in micros))
        slowest.append(max(ranks) / micro / rounds)
    return fmean(slowest)


LAYOUTS = [(1, 1, 1, False), (8, 1, 1, False), (2, 8, 1, False), (4, 8, 4, False), (8, 8, 1, True)]


@pytest.mark.parametrize(("micro", "world", "rounds", "packing"), LAYOUTS)
def test_a_plan_counts_the_tokens_that_the_trainer_computes(
    micro: int, world: int, rounds: int, packing: bool
) -> None:
    expected = trained_by(micro, world, rounds, packing=packing)

    exact, guessed = (
        computed_tokens(lengths, side_by_side=micro, packing=packing, ranks=world, rounds=rounds)
        for lengths in (
            ranks_of(CHATS),
            estimate_lengths(fmean(CHATS), tuple(sorted(CHATS, reverse=True)[:100]), ROWS),
        )
    )

    assert exact == pytest.approx(expected, rel=0.12)
    assert guessed == pytest.approx(expected, rel=0.12)


def test_estimated_lengths_at_the_bounds() -> None:
    alike = estimate_lengths(300.0, (300,) * 100, 5000)

    assert computed_tokens(alike, side_by_side=8, packing=False, ranks=16, rounds=1) == 300
    assert set(estimate_lengths(160.0, (400, 120, 80, 40), 4)) == {40, 80, 120, 400}
    assert estimate_lengths(123.4, (), 5000) == (123,), "the longest are not known"
    assert cut_lengths((10, 5000), 2048) == (10, 2048)


@pytest.mark.parametrize("rows", [1000, 1_000_000])
def test_guessed_lengths_keep_the_mean_and_the_longest_of_the_file(rows: int) -> None:
    longest = tuple(range(3000, 2000, -10))

    lengths = estimate_lengths(600.0, longest, rows)

    assert list(lengths) == sorted(lengths)
    assert lengths[-1] <= 3000
    assert fmean(lengths) == pytest.approx(600.0, rel=0.05)


@pytest.mark.parametrize("share", [0.2, 0.9])
def test_a_mix_of_short_and_long_rows_is_counted_as_it_is_trained(share: float) -> None:
    mix = Mix(short_share=share, threshold_tokens=200)
    trained = LengthMixOrder(7, np.array(CHATS), mix)
    batches = [[CHATS[trained.row(4 * step + n)] for n in range(4)] for step in range(600)]

    lengths = mixed_lengths(ranks_of(CHATS), mix, 1)

    counted = computed_tokens(lengths, side_by_side=1, packing=False, ranks=1, rounds=1)
    assert counted == pytest.approx(fmean(map(fmean, batches)), rel=0.05)
    padded = computed_tokens(lengths, side_by_side=4, packing=False, ranks=1, rounds=1)
    assert padded == pytest.approx(fmean(map(max, batches)), rel=0.12)
    assert mixed_lengths((10, 20), Mix(short_share=0.5, threshold_tokens=5), 1) == (10, 20)
