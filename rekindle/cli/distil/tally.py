"""Counts of skipped prompts, dropped candidates, and token costs."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rekindle.cli import formats
from rekindle.cli.files.skipped_rows import SkippedRows


@dataclass
class DistilTally:
    """Skipped prompts by reason with their lines, and dropped candidates by reason."""

    skipped: SkippedRows = field(default_factory=SkippedRows)
    dropped: Counter[str] = field(default_factory=Counter)  # why: candidates

    def drop(self, why: str) -> None:
        """Count a candidate as dropped."""
        self.dropped[why] += 1

    def as_dict(self) -> dict[str, Any]:
        """Return the counts as JSON output."""
        skipped = self.skipped.as_dict()
        return {"prompts_left_out": skipped, "candidates_dropped": dict(self.dropped)}

    def summary_lines(self) -> Iterator[str]:
        """Yield the counts as text."""
        if total := self.skipped.total:
            reasons = "; ".join(self.skipped.reasons())
            yield f"{formats.count(total, 'prompt')} left out: {reasons}"
        if self.dropped:
            why = "; ".join(f"{formats.printable_line(w)} ({n:,})" for w, n in self.dropped.items())
            yield f"{formats.count(self.dropped.total(), 'candidate')} dropped: {why}"


@dataclass
class TokenUsage:
    """Replies and their tokens, as the teacher reports them in `usage`."""

    replies: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def add(self, prompt_tokens: int, completion_tokens: int) -> None:
        """Count one reply."""
        self.replies += 1
        self.prompt_tokens += prompt_tokens
        self.completion_tokens += completion_tokens

    def as_dict(self) -> dict[str, int]:
        """Return the counts as JSON output."""
        return dict(vars(self))

    def cost(self, prices: Mapping[str, float | None]) -> float | None:
        """Return the cost at prices per million tokens; None if a price is unknown."""
        ins, outs = prices["input"], prices["output"]
        if ins is None or outs is None:
            return None
        return (self.prompt_tokens * ins + self.completion_tokens * outs) / 1e6
