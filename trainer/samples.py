"""`python -m trainer.samples OUT.jsonl --rows N --seed S` writes chats in OpenAI's file format."""

import argparse
import json
import sys
from pathlib import Path

from trainer.tiny_text import chats


def write_samples(path: Path, rows: int, seed: int) -> None:
    """Write ``rows`` chats, one JSON object a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as f:
        for messages in chats(rows, seed):
            f.write(json.dumps({"messages": messages}) + "\n")


def main() -> None:
    """Read the arguments and write the file."""
    parser = argparse.ArgumentParser(prog="python -m trainer.samples", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    write_samples(args.out, args.rows, args.seed)
    sys.stderr.write(f"{args.rows} chats are in {args.out}\n")


if __name__ == "__main__":
    main()
