"""`python -m trainer.samples OUT.jsonl [--preferences] --rows N --seed S` writes sample rows.

They are chats, or preferences, in OpenAI's file formats; or rankings (`--rankings`), in ours.
"""

import argparse
import json
import sys
from pathlib import Path

from trainer.tiny_text import chats, preferences, rankings


def write_samples(path: Path, rows: int, seed: int) -> None:
    """Write ``rows`` chats, one JSON object a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as f:
        for messages in chats(rows, seed):
            f.write(json.dumps({"messages": messages}) + "\n")


def write_preferences(path: Path, rows: int, seed: int) -> None:
    """Write ``rows`` preferences, one JSON object a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as f:
        for prompt, right, wrong in preferences(rows, seed):
            answers = {"preferred_output": [right], "non_preferred_output": [wrong]}
            f.write(json.dumps({"input": {"messages": prompt}} | answers) + "\n")


def write_rankings(path: Path, rows: int, seed: int) -> None:
    """Write ``rows`` rankings of two or three answers, one JSON object a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as f:
        for prompt, answers in rankings(rows, seed):
            row = {"input": {"messages": prompt}, "ranked_outputs": [[a] for a in answers]}
            f.write(json.dumps(row) + "\n")


def write_prompts(path: Path, rows: int, seed: int) -> None:
    """Write ``rows`` prompts with the answer that is right, one JSON object a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as f:
        for prompt, right, _ in preferences(rows, seed):
            f.write(json.dumps({"messages": prompt, "answer": right["content"]}) + "\n")


def main() -> None:
    """Read the arguments and write the file."""
    parser = argparse.ArgumentParser(prog="python -m trainer.samples", description=__doc__)
    parser.add_argument("out", type=Path)
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--preferences", action="store_true", help="of two answers each")
    kind.add_argument("--rankings", action="store_true", help="of two or three answers, best first")
    kind.add_argument("--prompts", action="store_true", help="with the right answer beside them")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    write = write_rankings if args.rankings else write_samples
    write = write_prompts if args.prompts else write
    write = write_preferences if args.preferences else write
    write(args.out, args.rows, args.seed)
    sys.stderr.write(f"{args.rows} rows are in {args.out}\n")


if __name__ == "__main__":
    main()
