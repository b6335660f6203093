"""A rank's answers as one file of a checkpoint: safetensors under another suffix.

Files that end in .safetensors are read in ranges, by the rank that wrote them. This file is read
whole, by every rank of a world of another size, which redistributes the answers.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from trainer.rollout.experience import GradedAnswer, ReplayState

Array = np.ndarray[Any, Any]
SUFFIX = ".answers"
_FLOATS = ("behaviour", "reference", "values")  # one for each token, or none
_NUMBERS = ("sample", "number", "born", "prompt")


def answers_name(rank: int) -> str:
    """Return the name of the file that holds a rank's answers."""
    return f"rank-{rank:05d}{SUFFIX}"


def write_answers(experience: ReplayState, path: Path) -> None:
    """Write a rank's answers; reading them back gives equal values."""
    rows = (*experience.waiting, *experience.replay)
    columns = {
        "ids": _concatenate((row.ids for row in rows), np.int32),
        "lengths": np.array([len(row.ids) for row in rows], dtype=np.int64),
        "waiting": np.array([len(experience.waiting)], dtype=np.int64),
        "scores": np.array([(row.grade, row.advantage) for row in rows]).reshape(-1, 2),
        "counts": np.array([[len(getattr(row, n)) for n in _FLOATS] for row in rows]).reshape(
            -1, len(_FLOATS)
        ),
        "numbers": np.array([[getattr(row, n) for n in _NUMBERS] for row in rows]).reshape(
            -1, len(_NUMBERS)
        ),
    }
    for name in _FLOATS:
        columns[name] = _concatenate((getattr(row, name) for row in rows), np.float32)
    save_file(columns, path)


def read_answers(path: Path) -> ReplayState:
    """Read what `write_answers` wrote."""
    columns = load_file(path)
    counts, lengths = columns["counts"], columns["lengths"]
    ids = _split(columns["ids"], lengths)
    floats = [_split(columns[name], counts[:, n]) for n, name in enumerate(_FLOATS)]
    rows = [
        _row(own, scores, numbers, arrays)
        for own, scores, numbers, *arrays in zip(
            ids, columns["scores"], columns["numbers"], *floats, strict=True
        )
    ]
    waiting = int(columns["waiting"][0])
    return ReplayState(tuple(rows[:waiting]), tuple(rows[waiting:]))


def redistribute_answers(parts: Sequence[ReplayState], world_size: int, rank: int) -> ReplayState:
    """Return one rank's share of the answers of a world of another size.

    Replayed answers are dealt round-robin, ordered by birth. Each rank gets all waiting answers and
    uses those of its own samples.
    """
    waiting = {_answer_key(row): row for part in parts for row in part.waiting}
    old = sorted((row for part in parts for row in part.replay), key=_birth_key)
    return ReplayState(tuple(waiting[key] for key in sorted(waiting)), tuple(old[rank::world_size]))


def _row(ids: Array, scores: Array, numbers: Array, arrays: Sequence[Array]) -> GradedAnswer:
    sample, number, born, prompt = map(int, numbers)
    behaviour, reference, values = arrays
    return GradedAnswer(
        sample=sample,
        number=number,
        born=born,
        ids=ids,
        prompt=prompt,
        grade=float(scores[0]),
        advantage=float(scores[1]),
        behaviour=behaviour,
        reference=reference,
        values=values,
    )


def _answer_key(row: GradedAnswer) -> tuple[int, int]:
    return row.sample, row.number


def _birth_key(row: GradedAnswer) -> tuple[int, int, int]:
    return row.born, row.sample, row.number


def _concatenate(parts: Iterable[Array], dtype: type) -> Array:
    return np.concatenate([np.zeros(0, dtype=dtype), *parts])


def _split(flat: Array, lengths: Array) -> list[Array]:
    ends = np.cumsum(lengths)
    return np.split(flat, ends[:-1]) if len(ends) else []
