"""Count the tokens that a micro-step computes: padding, and waiting for the longest rows.

The trainer shuffles rows, pads a micro-batch to its longest sequence (`trainer/data/batch.py`), and
waits for every rank before gradients are summed. Packed, nothing is padded.
"""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from statistics import NormalDist, fmean

from rendering.report import QUANTILES
from service.domain.training.preflight import mean_padded
from trainer.contract import Mix

_NORMAL = NormalDist()
_REMEMBERED = 128  # files
_padded = lru_cache(maxsize=1024)(mean_padded)


def computed_tokens(
    lengths: Sequence[int], *, side_by_side: int, packing: bool, ranks: int, rounds: int
) -> int:
    """Return the expected tokens per sequence that the slowest rank computes.

    ``lengths``: as of `mean_padded`. ``side_by_side``: sequences of a micro-batch. ``rounds``:
    micro-steps between two moments at which all ranks wait for each other.

    With one round the slowest rank has the longest sequence of all ranks. What it has more than the
    mean rank is a sum of independent parts in several rounds, and falls with their root; so it does
    with the sequences of a packed micro-batch. The first follows from Young (1949), the variance of
    a sum; `tests/unit/trainer/data/test_padding.py` compares it with the trainer's own batches.
    """
    width = 1 if packing else side_by_side
    parts = rounds * side_by_side if packing else rounds
    own, longest = _padded(tuple(lengths), width), _padded(tuple(lengths), width * ranks)
    return math.ceil(own + (longest - own) / math.sqrt(parts))


@lru_cache(maxsize=_REMEMBERED)
def estimate_lengths(mean: float, longest: tuple[int, ...], rows: int) -> tuple[int, ...]:
    """Guess tokens of sequences at evenly spaced ranks, shortest first, before rows are tokenized.

    ``longest``: of the longest rows, longest first. Where these are all rows, nothing is guessed.
    Else lengths are log-normal with this mean m, and q, the shortest of the k longest, is the
    quantile 1 - k/n: with z standard deviations there, ln(q/m) = z s - s^2/2 gives the spread s.
    """
    if not longest:
        return (max(round(mean), 1),)
    indices = [int((1 - (rank + 0.5) / QUANTILES) * rows) for rank in range(QUANTILES)]
    measured = [longest[index] for index in reversed(indices) if index < len(longest)][::-1]
    spread = _spread(mean, longest[-1], len(longest) / rows) if rows > len(longest) else 0.0
    ranks = [_NORMAL.inv_cdf((r + 0.5) / QUANTILES) for r in range(QUANTILES - len(measured))]
    guessed = [mean * math.exp(z * spread - spread**2 / 2) for z in ranks]
    scale = _scale(mean, guessed, measured)
    return (*(max(round(min(g * scale, longest[-1])), 1) for g in guessed), *measured)


@lru_cache(maxsize=_REMEMBERED)
def cut_lengths(lengths: tuple[int, ...], context: int) -> tuple[int, ...]:
    """Return the lengths of the same rows cut to the context."""
    return tuple(min(length, context) for length in lengths)


def mixed_lengths(lengths: Sequence[int], mix: Mix, sequences: int) -> Sequence[int]:
    """Return the lengths in the proportion that a mix trains them in; ``sequences`` of a row.

    As `trainer/data/order.py`: where all rows are of one kind, nothing changes.
    """
    short = [length for length in lengths if length * sequences <= mix.threshold_tokens]
    long = [length for length in lengths if length * sequences > mix.threshold_tokens]
    if not (short and long):
        return lengths
    count = round(len(lengths) * mix.short_share)
    return (*_evenly(short, count), *_evenly(long, len(lengths) - count))


def _evenly(values: Sequence[int], count: int) -> Iterator[int]:
    return (values[int((n + 0.5) * len(values) / count)] for n in range(count))


def _spread(mean: float, quantile: float, share: float) -> float:
    z = _NORMAL.inv_cdf(1 - share)
    if quantile <= mean or z <= 0:
        return 0.0
    return z - math.sqrt(max(z**2 - 2 * math.log(quantile / mean), 0.0))


def _scale(mean: float, guessed: Sequence[float], measured: Sequence[int]) -> float:
    """Return the factor on guessed lengths that makes the mean of all right."""
    remaining = mean * QUANTILES - sum(measured)
    return remaining / (fmean(guessed) * len(guessed)) if guessed and remaining > 0 else 1.0
