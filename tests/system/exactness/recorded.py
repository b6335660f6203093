"""Run the trainer and record the rows that it trains: an argument, the run's folder.

Nothing of the trainer is another than in the product. What its feed says in its debug log is kept,
one file for each rank: what was given out, not what should have been.
"""

import json
import logging
import os
import sys
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

PROGRAM = "tests.system.exactness.recorded"


class Keeper(logging.Handler):
    """Writes down the samples that were consumed before a step, and the step's rows."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        """One line a step."""
        with self._path.open("a") as lines:
            lines.write(json.dumps(record.args) + "\n")


def rows_trained(root: Path, world: int) -> dict[int, list[int]]:
    """By the samples consumed before a step: all ranks' rows, in the order of the samples.

    Feeds work ahead: a step that was prepared is in it, too, when it was never trained.
    """
    ranks = [_of_rank(_file(root, rank)) for rank in range(world)]
    starts = set.intersection(*(set(rank) for rank in ranks))
    return {start: list(_in_order([rank[start] for rank in ranks])) for start in sorted(starts)}


def _in_order(ranks: list[list[list[int]]]) -> Iterator[int]:
    """Yield the rows of one micro-step after another, those of all ranks side by side."""
    for micro in zip_longest(*ranks, fillvalue=[]):
        for rows in micro:
            yield from rows


def _of_rank(path: Path) -> dict[int, list[list[int]]]:
    lines = (json.loads(line) for line in path.read_text().splitlines())
    return dict(lines)


def _file(root: Path, rank: int) -> Path:
    return root / f"rows-{rank:05}.jsonl"


def main() -> None:
    """Listen to the feed, and train."""
    from trainer import train  # noqa: PLC0415 - it looks at the environment when imported

    rank = int(os.environ["RANK"])  # noqa: TID251 - torchrun's
    feed = logging.getLogger("trainer.data.prefetch")
    feed.setLevel(logging.DEBUG)
    feed.propagate = False
    feed.addHandler(Keeper(_file(Path(sys.argv[1]), rank)))
    train.main()


if __name__ == "__main__":
    main()
