"""`python -m trainer.samples OUT.jsonl` writes sample rows for every method of training.

The rows are chats, or what an option names, in OpenAI's file formats where there is one. Rows with
`--held-out` are for validation: no training row asks the same question.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import Any

from trainer.sample_data.cafe import EVASIONS, FACTS, letters, questions, sums

Row = dict[str, Any]


def chats(random: Random, *, held_out: bool) -> Iterator[Row]:
    """Write chats: questions to a café with their answers."""
    for question, answer in questions(held_out=held_out):
        yield {"messages": [_user(question), _assistant(answer)]}


def preferences(random: Random, *, held_out: bool) -> Iterator[Row]:
    """Write preferences: the right answer is preferred to an evasion."""
    for question, answer in questions(held_out=held_out):
        yield {
            "input": {"messages": [_user(question)]},
            "preferred_output": [_assistant(answer)],
            "non_preferred_output": [_assistant(random.choice(EVASIONS))],
        }


def rankings(random: Random, *, held_out: bool) -> Iterator[Row]:
    """Write rankings: the right answer, that of another question, sometimes an evasion."""
    for number, (question, answer) in enumerate(questions(held_out=held_out)):
        wrong = random.choice([fact.answer for fact in FACTS if fact.answer != answer])
        answers = [answer, wrong, random.choice(EVASIONS)][: 2 + number % 2]
        yield {
            "input": {"messages": [_user(question)]},
            "ranked_outputs": [[_assistant(text)] for text in answers],
        }


def labels(random: Random, *, held_out: bool) -> Iterator[Row]:
    """Write texts of customers, labelled praise, complaint or question."""
    for text, label in letters(held_out=held_out):
        yield {"text": text, "label": label}


def prompts(random: Random, *, held_out: bool) -> Iterator[Row]:
    """Write sums with their results, for the grader `exact_answer`."""
    for question, answer in sums(held_out=held_out):
        yield {"messages": [_user(question)], "answer": answer}


KINDS: dict[str, Callable[..., Iterator[Row]]] = {
    "chats": chats,
    "preferences": preferences,
    "rankings": rankings,
    "labels": labels,
    "prompts": prompts,
}


def sample_rows(kind: str, *, held_out: bool = False, seed: int = 0) -> list[Row]:
    """Return all rows of a kind, shuffled by the seed."""
    random = Random(seed)  # noqa: S311 - sample text, not secrets
    rows = list(KINDS[kind](random, held_out=held_out))
    random.shuffle(rows)
    return rows


def _user(text: str) -> Row:
    return {"role": "user", "content": text}


def _assistant(text: str) -> Row:
    return {"role": "assistant", "content": text}


def main() -> None:
    """Read the arguments and write the file."""
    parser = argparse.ArgumentParser(prog="python -m trainer.samples", description=__doc__)
    parser.add_argument("out", type=Path)
    kind = parser.add_mutually_exclusive_group()
    for name, write in KINDS.items():
        kind.add_argument(
            f"--{name}", dest="kind", action="store_const", const=name, help=write.__doc__
        )
    parser.set_defaults(kind="chats")
    parser.add_argument("--held-out", action="store_true", help="rows for validation")
    parser.add_argument(
        "--rows", type=int, help="number of rows, repeated if too few; default: all"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the order; default: 0")
    args = parser.parse_args()
    rows = sample_rows(args.kind, held_out=args.held_out, seed=args.seed)
    rows = list(islice(cycle(rows), args.rows or len(rows)))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    sys.stderr.write(f"{len(rows)} rows are in {args.out}\n")


if __name__ == "__main__":
    main()
