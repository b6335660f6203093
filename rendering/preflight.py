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
from rendering.refusals import explain_refusal
from rendering.report import DataFinding, DataReport
from rendering.rows import RowError
from rendering.sequences import RowReader, RowSequence, SequenceProblem, SplitNeeded
from rendering.tally import FileTally
from rendering.task import Task
from rendering.templates.chat_template import RenderError
from rendering.tokenizer import Tokenizer, UnusableTokenizer, read_tokenizer
from rendering.tokens import trained_mask

SPLIT_NEEDED = 3  # exit code
BATCH_ROWS = 64  # rows that are tokenized together
PROGRESS_SECONDS = 1.0
# Findings of rows without effect on training.
UNTRAINED_CODES = (
    "row_not_trained",
    "answers_equal",
)
_SURROGATE = re.compile("[\ud800-\udfff]")

Line = tuple[int, bytes]  # number in the file, text
ReadRow = tuple[int, list[RowSequence]]


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

    def check_lines(self, lines: list[Line]) -> None:
        """Check some rows; raise SplitNeeded."""
        readable = [
            (number, sequences) for number, sequences in self._read_sequences(lines) if sequences
        ]
        encodings = iter(self._encode_all(readable))
        for number, sequences in readable:
            self._check_row(number, sequences, list(islice(encodings, len(sequences))))
        self._tally.rows += len(lines)

    def findings(self) -> tuple[DataFinding, ...]:
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

    def _read_sequences(self, lines: list[Line]) -> Iterator[ReadRow]:
        for number, line in lines:
            with limited_row():
                sequences = self._row_sequences(number, line)
            yield number, sequences

    def _row_sequences(self, number: int, line: bytes) -> list[RowSequence]:
        row: object = None
        try:
            row = rows.parse_line(line)
            return self._reader.sequences(row)
        except RenderError as error:
            message, code = self._explain_refusal(row, error), "template_refuses"
        except RowError as error:
            message, code = str(error), "unreadable_row"
        except (SplitNeeded, UnusableTokenizer):
            raise
        except Exception as error:  # noqa: BLE001 - one row must not hide what others have
            message, code = f"the row cannot be read ({error!r:.200})", "unreadable_row"
        self._tally.add_problem(number, SequenceProblem(code, message, is_error=True))
        return []

    def _explain_refusal(self, row: object, error: RenderError) -> str:
        if isinstance(row, dict) and isinstance(row.get("messages"), list):
            return explain_refusal(self._tokenizer, row, error, self._task.today)
        return f"the model's chat template refuses the row ({error}): change the row"

    def _encode_all(self, rows_read: list[ReadRow]) -> Iterator[Encoding | None]:
        """Tokenize all texts in one batch; if that fails, one by one to find the bad text."""
        sequences = [sequence for _, row_sequences in rows_read for sequence in row_sequences]
        backend = self._tokenizer.backend
        try:
            texts = [sequence.text for sequence in sequences]
            encodings = iter(backend.encode_batch(texts, add_special_tokens=False))
        except Exception:  # noqa: BLE001 - the library raises bare Exceptions
            encodings = None
        for sequence in sequences:
            yield next(encodings) if encodings else _try_encode(self._tokenizer, sequence.text)

    def _check_row(
        self, number: int, sequences: list[RowSequence], encodings: list[Encoding | None]
    ) -> None:
        if None in encodings:
            texts = "".join(sequence.text for sequence in sequences)
            self._tally.add_problem(
                number, SequenceProblem("unreadable_row", explain_damage(texts), is_error=True)
            )
            return
        pairs = [(s, e) for s, e in zip(sequences, encodings, strict=True) if e is not None]
        problems = list(self._check_sequences(pairs))
        for problem in {problem.code: problem for problem in problems}.values():
            self._tally.add_problem(number, problem)
        self._tally.add_examples(1 if self._task.has_answers else len(sequences))

    def _check_sequences(
        self, pairs: list[tuple[RowSequence, Encoding]]
    ) -> Iterator[SequenceProblem]:
        longest = self._task.room
        answers: list[tuple[list[int], int]] = []
        for sequence, encoding in pairs:
            ids, rendered = encoding.ids, sequence.rendered
            tokens = len(ids) + (self._around if sequence.is_plain else 0)
            if rendered:
                trained = trained_mask(encoding, rendered)
                targets, within = sum(trained[1:]), sum(trained[1:longest])
            else:
                targets = within = min(tokens, longest)
            answers.append((ids[:longest], within))
            self._tally.add_sequence(tokens, min(tokens, longest), within)
            yield from self._length_problems(tokens, targets, within)
            yield from lost_content.find_lost_in_template(sequence)
            yield from lost_content.find_lost_in_tokens(sequence.text, ids, self._tokenizer)
        if self._task.has_answers and all(answer == answers[0] for answer in answers[1:]):
            message = "the answers do not differ, so nothing is learnt from them; leave the row out"
            yield SequenceProblem("answers_equal", f"{message}, or raise training.max_seq_len")

    def _length_problems(self, tokens: int, targets: int, within: int) -> Iterator[SequenceProblem]:
        longest = self._task.room
        if self._task.method == "reinforcement":
            if tokens > longest:
                yield SequenceProblem("long_row", _no_room_message(tokens, longest))
            return
        lengths = f"the row has {tokens} tokens, and training.max_seq_len keeps {longest}"
        remedy = "raise training.max_seq_len, or shorten the row"
        if not within:
            why = lengths if targets else "no token of the row is trained"
            yield SequenceProblem(
                "row_not_trained", f"{why}: nothing of its answer is learnt; {remedy}"
            )
        elif within < targets:
            yield SequenceProblem(
                "answer_cut", f"{lengths}: the end of its answer is not learnt; {remedy}"
            )
        elif tokens > longest:
            yield SequenceProblem("long_row", f"{lengths}; {remedy}")

    def _require_learning(self) -> None:
        """Make warnings errors if every row has one that leaves it untrained."""
        tally = self._tally
        codes = UNTRAINED_CODES if self._task.method != "reinforcement" else ("long_row",)
        for code in codes:
            if tally.count_findings(code) == tally.rows > 0:
                tally.make_errors(code)


def main() -> int:
    """Check standard input and print progress and the report."""
    task = Task.from_json(sys.argv[1])
    limit_process()
    start = time.process_time()
    try:
        preflight = Preflight(read_tokenizer(Path(task.folder), task.method), task)
        _check_file(preflight, sys.stdin.buffer)
    except UnusableTokenizer as error:
        _print_json({"unusable": str(error)})
        return 1
    except SplitNeeded:
        return SPLIT_NEEDED
    _print_json({"report": preflight.report(time.process_time() - start).as_dict()})
    return 0


def _check_file(preflight: Preflight, file: BinaryIO) -> None:
    printed_at = time.monotonic()
    lines = numbered_lines(file)
    while batch := list(islice(lines, BATCH_ROWS)):
        preflight.check_lines(batch)
        if time.monotonic() - printed_at >= PROGRESS_SECONDS:
            printed_at = time.monotonic()
            _print_json({"rows": preflight.rows})


def numbered_lines(file: Iterable[bytes]) -> Iterator[Line]:
    """Yield each non-blank line with its number."""
    return ((number, line) for number, line in enumerate(file, 1) if line.strip())


def explain_damage(text: str) -> str:
    """Return why a tokenizer cannot read a text."""
    if match := _SURROGATE.search(text):
        return (
            f"the text holds half of a surrogate pair (U+{ord(match.group()):04X}), which is no "
            "character: write the whole character, or leave it out"
        )
    return "the model's tokenizer cannot read the row's text: leave the row out"


def _no_room_message(tokens: int, longest: int) -> str:
    return (
        f"the prompt has {tokens} tokens, and with more than {longest} its answer has too little "
        "room; shorten it, raise training.max_seq_len, or lower max_answer_tokens"
    )


def _try_encode(tokenizer: Tokenizer, text: str) -> Encoding | None:
    try:
        return tokenizer.encode(text)
    except Exception:  # noqa: BLE001 - the library raises bare Exceptions
        return None


def _template_sha256(tokenizer: Tokenizer) -> str:
    text = json.dumps(dict(sorted(tokenizer.templates.items())))
    return hashlib.sha256(text.encode()).hexdigest()


def _print_json(message: dict[str, object]) -> None:
    print(json.dumps(message), flush=True)  # noqa: T201 - the service reads it


if __name__ == "__main__":
    sys.exit(main())
