"""Training and evaluation: whether anything drops out."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def evaluation_mode(engine: Any) -> Iterator[None]:  # noqa: ANN401
    """Meanwhile nothing drops out."""
    training = engine.module.training
    engine.eval()
    try:
        yield
    finally:
        engine.train(training)
