"""Errors that neither another machine nor a retry can fix: a person must change the job.

A run is exact, so it would fail again at the same place, on machines that cost money.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from jinja2 import TemplateError

from trainer.rundir import RunDir, write_atomically

# Errors of code with wrong input. Run spec, inputs and code are the same on every
# machine, and verified. What machines, networks and full disks do is OSError, or RuntimeError.
RECURRING = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NotImplementedError,
    RecursionError,
    TemplateError,
    TypeError,
    ValueError,
)
_SHAPES = (  # parts of torch's RuntimeErrors about incompatible tensors
    "size mismatch",
    "shapes cannot be multiplied",
    "must match the size of tensor",
    "must have the same dtype",
)


class NonRetryableError(ValueError):
    """An error whose text says what is wrong, and what to do."""


@contextmanager
def record_non_retryable(rundir: RunDir, rank: int) -> Iterator[None]:
    """Write a non-retryable or recurring error for the supervisor, and re-raise it."""
    try:
        yield
    except NonRetryableError as e:
        write_atomically(rundir.non_retryable(rank), str(e))
        raise
    except (RuntimeError, *RECURRING) as e:
        if is_recurring(e):
            write_atomically(rundir.non_retryable(rank), _recurring(e))
        raise


@contextmanager
def treat_as_retryable() -> Iterator[None]:
    """Re-raise errors as RuntimeError: they may not occur on the next machine."""
    try:
        yield
    except RECURRING as e:
        raise RuntimeError(f"{type(e).__name__}: {e}") from e


def is_recurring(error: Exception) -> bool:
    """Return whether the same run fails again on any machine."""
    if type(error) is RuntimeError:
        return any(sign in str(error) for sign in _SHAPES)
    return isinstance(error, RECURRING)


def _recurring(error: Exception) -> str:
    return (
        f"{type(error).__name__}: {error}. It would recur on any machine, so the job is not tried "
        "again: change the job, or report the traceback in its log"
    )
