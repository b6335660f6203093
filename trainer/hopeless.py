"""Errors that no other machine and no second try can mend: a person must change the job.

A run is exact, so it would meet them again at the same place, on machines that cost money.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from trainer.rundir import RunDir, write_whole


class Hopeless(ValueError):
    """Its text says what is wrong, and what to do."""


@contextmanager
def told(rundir: RunDir, rank: int) -> Iterator[None]:
    """Leave the text of one for the supervisor; the error goes on."""
    try:
        yield
    except Hopeless as e:
        write_whole(rundir.hopeless(rank), str(e))
        raise
