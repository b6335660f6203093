"""Choose the rows on which a model is verified, from the validation or training file."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.contract import InputFile, RunSpec
from trainer.contract.wire import Message
from trainer.data.prompts import Prompts
from trainer.data.tokens import open_tokens

SEQUENCES = 16  # at most, in all
TOKENS = 8192  # of all sequences together, but for the first one
LONGEST = 1024  # tokens of one sequence; a training step has taken as many
CANDIDATES = 64  # rows that are looked at


@dataclass(frozen=True, kw_only=True)
class VerificationRow(Message):
    """One sequence of a data file, as the trainer tokenized it."""

    number: int  # of the sequence in its file
    ids: tuple[int, ...]  # all of them
    trained: tuple[bool, ...]
    label: int | None = None  # the class, for classification
    length: int  # tokens that are read for the verification
    whole: bool = False  # every token is scored, not only the trained ones

    @property
    def positions(self) -> list[int]:
        """Positions of the scored tokens; each is predicted from the position before."""
        return [p for p in range(1, self.length) if self.whole or self.trained[p]]


class VerificationRows:
    """The sequences of one data file by number; a broken one is None."""

    def __init__(self, path: Path, tokens: Path, tokenizer: Any, spec: RunSpec) -> None:  # noqa: ANN401
        """Open the file; ``tokens`` is a cache file of ``path`` that may exist."""
        self._classes = spec.method == "classification"
        self._prompts = spec.reinforcement is not None
        self.per_row = 1 if self._prompts else spec.sequences_per_row
        self._source: Any = (
            Prompts(path, tokenizer, spec)
            if self._prompts
            else open_tokens(tokens, path, tokenizer, spec)
        )

    def __len__(self) -> int:
        return len(self._source)

    def get(self, number: int, most: int) -> VerificationRow | None:
        """Return the sequence, to be read up to ``most`` tokens."""
        try:
            tokens = self._source[number]
        except ValueError:  # a broken row that was never trained
            return None
        ids = tuple(tokens.ids)
        trained = (False,) * len(ids) if self._prompts else tuple(tokens.trained)
        label = None
        if self._classes:
            ids, trained, label = ids[:-1], trained[:-1], ids[-1]
        length = min(len(ids), most)
        return VerificationRow(number=number, ids=ids, trained=trained, label=label, length=length)


def verified_file(spec: RunSpec) -> InputFile:
    """Return the file whose rows are scored."""
    return spec.validation_file or spec.training_file


def choose_rows(
    source: VerificationRows, spec: RunSpec, *, by_score: bool
) -> list[VerificationRow]:
    """Choose a few sequences, evenly spread over the file.

    ``by_score``: the model scores each sequence. Else a sequence needs a token to score; where no
    candidate has a trained one, every token is scored.
    """
    most = min(LONGEST, spec.loss_chunk or LONGEST)
    candidates = list(_candidates(source, most))
    if by_score:
        return _within_bounds(candidates, source.per_row)
    if selected := _within_bounds([[r for r in rows if r.positions] for rows in candidates], 1):
        return selected
    fully_scored = [
        [_with_all_tokens_scored(row) for row in rows if row.length > 1] for rows in candidates
    ]
    return _within_bounds(fully_scored, 1)


def _candidates(source: VerificationRows, most: int) -> Iterator[list[VerificationRow]]:
    """Yield the sequences of each candidate row, without empty ones."""
    rows = len(source) // source.per_row
    for row in range(0, rows, max(1, -(-rows // CANDIDATES))):
        numbers = range(row * source.per_row, (row + 1) * source.per_row)
        sequences = [source.get(number, most) for number in numbers]
        yield [row for row in sequences if row is not None and row.length]


def _within_bounds(candidates: list[list[VerificationRow]], least: int) -> list[VerificationRow]:
    """Return the first rows of at least ``least`` sequences, within the bounds."""
    selected: list[VerificationRow] = []
    for rows in candidates:
        if not rows or len(rows) < least:
            continue
        extended = [*selected, *rows]
        if selected and (len(extended) > SEQUENCES or sum(r.length for r in extended) > TOKENS):
            break
        selected = extended
    return selected


def _with_all_tokens_scored(row: VerificationRow) -> VerificationRow:
    members = vars(row) | {"whole": True}
    return VerificationRow(**members)
