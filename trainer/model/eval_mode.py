"""Switch the model to evaluation mode for a while."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def evaluation_mode(engine: Any) -> Iterator[None]:  # noqa: ANN401
    """Disable dropout within the context."""
    training = engine.module.training
    engine.eval()
    try:
        yield
    finally:
        engine.train(training)
