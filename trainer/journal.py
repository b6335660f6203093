"""What the supervisor reads while training runs: metrics, spans and the progress file.

The processes with local rank 0 write; on the others every call does nothing.
"""

from pathlib import Path

from trainer.contract import Message, Span, StepMetrics
from trainer.rundir import RunDir
from trainer.state import Identity


class Journal:
    """Writes into the RunDir; a line is whole once it ends in a newline."""

    def __init__(self, rundir: RunDir, identity: Identity) -> None:
        self._rundir, self._identity = rundir, identity
        self._spans: set[str] = set()

    def metrics(self, metrics: StepMetrics) -> None:
        """Add one training step's numbers; a step said twice replaces what was said before."""
        if self._identity.rank == 0:
            _append(self._rundir.metrics, metrics)

    def span(self, name: str, started_at: float, ended_at: float) -> None:
        """Add one named piece of time."""
        if self._identity.local_rank == 0:
            _append(self._rundir.spans, Span(name=name, started_at=started_at, ended_at=ended_at))

    def span_once(self, name: str, started_at: float, ended_at: float) -> None:
        """Add a named piece of time, if it is the first of that name."""
        if name not in self._spans:
            self._spans.add(name)
            self.span(name, started_at, ended_at)

    def progress(self, step: int) -> None:
        """Tell how many training steps are finished; not synced, since it is only a hint."""
        if self._identity.local_rank == 0:
            part = self._rundir.progress.with_name(".progress.part")
            part.write_text(str(step))
            part.replace(self._rundir.progress)


def _append(path: Path, message: Message) -> None:
    with path.open("a") as f:
        f.write(message.to_json() + "\n")
