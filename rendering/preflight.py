"""Check a data file as a training run would read it: `python -m rendering.preflight TASK < FILE`.

Prints JSON lines: the number of checked rows every second, and the report at the end. Runs in its
own process with limits on memory and time, because templates and rows are untrusted. Exit code 3:
answers must be split; start again with `splits_answers`.
"""

import hashlib
import json
import re
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from tokenizers import Encoding

from rendering import lost_content, rows
from rendering.limits import limit_process, limited_row
from rendering.refusals import explain
from rendering.report import DataReport, Finding
from rendering.rows import RowError
from rendering.sequences import RowReader, Sequence, SequenceProblem, SplitNeeded
from rendering.tally import FileTally
from rendering.task import Task
from rendering.templates.chat_template import RenderError
from rendering.tokenizer import Tokenizer, UnusableTokenizer, load
from rendering.tokens import trained_tokens

SPLIT_NEEDED = 3  # exit code
AT_ONCE = 64  # rows that are tokenized together
PROGRESS_SECONDS = 1.0
USELESS = ("row_not_trained", "answers_equal")  # findings of rows without effect on training
_HALF = re.compile("[\ud800-\udfff]")

Line = tuple[int, bytes]  # number in the file, text
Read = tuple[int, list[Sequence]]


class Preflight:
    """Checks rows and counts their tokens and findings."""

    def __init__(self, tokenizer: Tokenizer, task: Task) -> None:
        self._tokenizer, self._task = tokenizer, task
        self._reader, self._tally = RowReader(tokenizer, task), FileTally()
        self._around = tokenizer.backend.num_special_tokens_to_add(False)

    @property
    def rows(self) -> int:
        """Number of checked rows."""
        return self._tally.rows

    def add(self, lines: list[Line]) -> None:
        """Check some rows; raise SplitNeeded."""
        found = [(number, sequences) for number, sequences in self._read(lines) if sequences]
        encodings = iter(self._encodings(found))
        for number, sequences in found:
            self._add_row(number, sequences, list(islice(encodings, len(sequences))))
        self._tally.rows += len(lines)

    def findings(self) -> tuple[Finding, ...]:
        """Return the errors and warnings so far."""
        return self._tally.findings()

    def report(self, seconds: float) -> DataReport:
        """Return the report of all rows; findings that leave nothing to train become errors."""
        self._require_learning()
        return self._tally.report(
            splits_answers=self._task.splits_answers,
            template_sha256=_template_sha256(self._tokenizer),
            seconds=seconds,
        )

    def _read(self, lines: list[Line]) -> Iterator[Read]:
        for number, line in lines:
            with limited_row():
                sequences = self._sequences(number, line)
            yield number, sequences

    def _sequences(self, number: int, line: bytes) -> list[Sequence]:
        row: object = None
        try:
            row = rows.parse(line)
            return self._reader.sequences(row)
        except RenderError as error:
            message, code = self._explained(row, error), "template_refuses"
        except RowError as error:
            message, code = str(error), "unreadable_row"
        except (SplitNeeded, UnusableTokenizer):
            raise
        except Exception as error:  # noqa: BLE001 - one row must not hide what others have
            message, code = f"the row cannot be read ({error!r:.200})", "unreadable_row"
        self._tally.add_problem(number, SequenceProblem(code, message, is_error=True))
        return []

    def _explained(self, row: object, error: RenderError) -> str:
        if isinstance(row, dict) and isinstance(row.get("messages"), list):
            return explain(self._tokenizer, row, error, self._task.today)
        return f"the model's chat template refuses the row ({error}): change the row"

    def _encodings(self, found: list[Read]) -> Iterator[Encoding | None]:
        """Tokenize all texts in one batch; if that fails, one by one to find the bad text."""
        sequences = [sequence for _, some in found for sequence in some]
        backend = self._tokenizer.backend
        try:
            texts = [sequence.text for sequence in sequences]
            together = iter(backend.encode_batch(texts, add_special_tokens=False))
        except Exception:  # noqa: BLE001 - the library raises bare Exceptions
            together = None
        for sequence in sequences:
            yield next(together) if together else _encoded(self._tokenizer, sequence.text)

    def _add_row(
        self, number: int, found: list[Sequence], encodings: list[Encoding | None]
    ) -> None:
        if None in encodings:
            texts = "".join(sequence.text for sequence in found)
            self._tally.add_problem(
                number, SequenceProblem("unreadable_row", damage(texts), is_error=True)
            )
            return
        pairs = [(s, e) for s, e in zip(found, encodings, strict=True) if e is not None]
        problems = list(self._added(pairs))
        for problem in {problem.code: problem for problem in problems}.values():
            self._tally.add_problem(number, problem)
        self._tally.add_examples(1 if self._task.has_answers else len(found))

    def _added(self, pairs: list[tuple[Sequence, Encoding]]) -> Iterator[SequenceProblem]:
        longest = self._task.room
        kept: list[tuple[list[int], int]] = []
        for sequence, encoding in pairs:
            ids, rendered = encoding.ids, sequence.rendered
            tokens = len(ids) + (self._around if sequence.is_plain else 0)
            if rendered:
                trained = trained_tokens(encoding, rendered)
                targets, within = sum(trained[1:]), sum(trained[1:longest])
            else:
                targets = within = min(tokens, longest)
            kept.append((ids[:longest], within))
            self._tally.add_sequence(tokens, min(tokens, longest), within)
            yield from self._cut(tokens, targets, within)
            yield from lost_content.lost_in_template(sequence)
            yield from lost_content.lost_in_tokens(sequence.text, ids, self._tokenizer)
        if self._task.has_answers and all(one == kept[0] for one in kept[1:]):
            message = "the answers do not differ, so nothing is learnt from them; leave the row out"
            yield SequenceProblem("answers_equal", f"{message}, or raise training.max_seq_len")

    def _cut(self, tokens: int, targets: int, within: int) -> Iterator[SequenceProblem]:
        longest = self._task.room
        if self._task.method == "reinforcement":
            if tokens > longest:
                yield SequenceProblem("long_row", _no_room(tokens, longest))
            return
        about = f"the row has {tokens} tokens, and training.max_seq_len keeps {longest}"
        remedy = "raise training.max_seq_len, or shorten the row"
        if not within:
            why = about if targets else "no token of the row is trained"
            yield SequenceProblem(
                "row_not_trained", f"{why}: nothing of its answer is learnt; {remedy}"
            )
        elif within < targets:
            yield SequenceProblem(
                "answer_cut", f"{about}: the end of its answer is not learnt; {remedy}"
            )
        elif tokens > longest:
            yield SequenceProblem("long_row", f"{about}; {remedy}")

    def _require_learning(self) -> None:
        """Make warnings errors if every row has one that leaves it untrained."""
        tally = self._tally
        codes = USELESS if self._task.method != "reinforcement" else ("long_row",)
        for code in codes:
            if tally.count_of(code) == tally.rows > 0:
                tally.condemn(code)


def main() -> int:
    """Check standard input and print progress and the report."""
    task = Task.from_json(sys.argv[1])
    limit_process()
    began = time.process_time()
    try:
        preflight = Preflight(load(Path(task.folder), task.method), task)
        _check(preflight, sys.stdin.buffer)
    except UnusableTokenizer as error:
        _print({"unusable": str(error)})
        return 1
    except SplitNeeded:
        return SPLIT_NEEDED
    _print({"report": preflight.report(time.process_time() - began).as_dict()})
    return 0


def _check(preflight: Preflight, file: BinaryIO) -> None:
    told_at = time.monotonic()
    lines = numbered(file)
    while some := list(islice(lines, AT_ONCE)):
        preflight.add(some)
        if time.monotonic() - told_at >= PROGRESS_SECONDS:
            told_at = time.monotonic()
            _print({"rows": preflight.rows})


def numbered(file: Iterable[bytes]) -> Iterator[Line]:
    """Yield each non-blank line with its number."""
    return ((number, line) for number, line in enumerate(file, 1) if line.strip())


def damage(text: str) -> str:
    """Return why a tokenizer cannot read a text."""
    if found := _HALF.search(text):
        return (
            f"the text holds half of a surrogate pair (U+{ord(found.group()):04X}), which is no "
            "character: write the whole character, or leave it out"
        )
    return "the model's tokenizer cannot read the row's text: leave the row out"


def _no_room(tokens: int, longest: int) -> str:
    return (
        f"the prompt has {tokens} tokens, and with more than {longest} its answer has too little "
        "room; shorten it, raise training.max_seq_len, or lower max_answer_tokens"
    )


def _encoded(tokenizer: Tokenizer, text: str) -> Encoding | None:
    try:
        return tokenizer.encode(text)
    except Exception:  # noqa: BLE001 - the library raises bare Exceptions
        return None


def _template_sha256(tokenizer: Tokenizer) -> str:
    text = json.dumps(dict(sorted(tokenizer.templates.items())))
    return hashlib.sha256(text.encode()).hexdigest()


def _print(message: dict[str, object]) -> None:
    print(json.dumps(message), flush=True)  # noqa: T201 - the service reads it


if __name__ == "__main__":
    sys.exit(main())
