"""Measure the rows before the first step, for orders other than a shuffle.

Every rank measures its share. A row's length does not depend on the source of its tokens, so a
later generation, or another world size, gets the same order.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rendering.templates.tool_calls import Json
from trainer.contract import RunSpec
from trainer.data.curriculum import CurriculumOrder
from trainer.data.length_mix import LengthMixOrder
from trainer.data.rows import JsonlRows
from trainer.data.tokens import TokenSource, open_run_rows
from trainer.state import RankIdentity

Order = Callable[[int], int]  # from the number of a sample to its row
SumOverRanks = Callable[[NDArray[np.int64]], NDArray[np.int64]]  # over all ranks; collective


def build_order(
    spec: RunSpec, path: Path, source: TokenSource, identity: RankIdentity, summed: SumOverRanks
) -> Order | None:
    """Return the order that the run spec asks for; None for a shuffle. ``path`` has the rows."""
    if spec.mix is not None:
        tokens = summed(_count_tokens(source, spec.sequences_per_row, identity))
        return LengthMixOrder(spec.seed, tokens, spec.mix).row
    if spec.curriculum is None:
        return None
    turns = summed(_count_turns(open_run_rows(path, spec), identity))
    tokens = summed(_count_tokens(source, spec.sequences_per_row, identity))
    return CurriculumOrder(spec.seed, turns, tokens, spec.curriculum, spec.global_batch).row


def _count_tokens(source: TokenSource, several: int, identity: RankIdentity) -> NDArray[np.int64]:
    """Return the tokens of each row of this rank's share [rows]; 0 elsewhere."""
    found = np.zeros(len(source) // several, dtype=np.int64)
    for row in _share(len(found), identity):
        found[row] = sum(source.length(row * several + n) for n in range(several))
    return found


def _count_turns(rows: JsonlRows, identity: RankIdentity) -> NDArray[np.int64]:
    """Return the messages of each row of this rank's share [rows]; 0 elsewhere."""
    found = np.zeros(len(rows), dtype=np.int64)
    for row in _share(len(rows), identity):
        found[row] = max(_messages(chat) for chat in rows[row])
    return found


def _messages(chat: Json) -> int:
    return len(chat["messages"]) if "messages" in chat else 1


def _share(rows: int, identity: RankIdentity) -> range:
    return range(identity.rank, rows, identity.world_size)
