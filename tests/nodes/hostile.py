"""HEAD files that a hostile node, or another holder of its SAS, may write."""

import json
from collections.abc import Callable
from typing import Any

from tests.nodes.scripted_node import committed
from trainer.contract import Committed, Head, model_path

LONG = 3 * 2**20


def _head(**members: Any) -> bytes:  # noqa: ANN401 - whatever JSON holds
    """Return a HEAD with a checkpoint of step 1 and with members replaced."""
    head = Head(generation=1, checkpoints=(committed(1, 1),)).to_plain()
    return json.dumps(head | members).encode()


def _entry(**members: Any) -> bytes:  # noqa: ANN401 - the same
    """Return a HEAD whose only checkpoint has members replaced."""
    return _head(checkpoints=[committed(1, 1).to_plain() | members])


def _model(**members: Any) -> bytes:  # noqa: ANN401 - the same
    """Return a HEAD with a model that has members replaced."""
    return _head(model=committed(9, 1, "final").to_plain() | members)


def _many(entry: Callable[[int], Committed]) -> list[dict[str, Any]]:
    return [entry(step).to_plain() for step in range(2000)]


HEADS: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"garbage",
    "no UTF-8": b'{"generation": 1, "checkpoints": "\xff"}',
    "a list": b"[]",
    "very long": b'{"generation": 1}' + b" " * LONG,
    "nested lists": b"[" * 100_000,
    "an unknown member": _head(colour="red"),
    "a member twice": b'{"generation": 1, "generation": 1}',
    "a generation of 2**70": _head(generation=2**70),
    "the largest generation": _head(generation=2**31 - 1),
    "a negative generation": _head(generation=-1),
    "a number of 5,000 digits": b'{"generation": ' + b"9" * 5000 + b"}",
    "a size of 2**63": _entry(size=2**63),
    "NaN as a loss": _entry(valid_loss=float("nan")),
    "a date beyond all dates": _entry(committed_at=1e300),
    "NUL in a path": _entry(path="checkpoints/step-00000001-\0"),
    "half a surrogate pair": _entry(kind="\ud800"),
    "a path that leads out": _entry(path="checkpoints/../../other/x"),
    "two thousand checkpoints": _head(checkpoints=_many(lambda step: committed(step, 1))),
    "a model with NUL": _model(path=model_path(9, "\0")),
}
