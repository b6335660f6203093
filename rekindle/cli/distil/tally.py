"""Counts of skipped prompts, dropped candidates, and token costs."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rekindle.cli import formats

_LINES_NAMED = 5
_LINES_KEPT = 100


@dataclass
class DistilTally:
    """Skipped prompts by reason with their lines, and dropped candidates by reason."""

    left_out: dict[str, list[int]] = field(default_factory=dict)  # why: lines
    dropped: Counter[str] = field(default_factory=Counter)  # why: candidates

    def leave_out(self, line: int, why: str) -> None:
        """Count the prompt on this line as skipped."""
        self.left_out.setdefault(why, []).append(line)

    def drop(self, why: str) -> None:
        """Count a candidate as dropped."""
        self.dropped[why] += 1

    def as_dict(self) -> dict[str, Any]:
        """Return the counts as JSON output."""
        out = {w: {"rows": len(at), "lines": at[:_LINES_KEPT]} for w, at in self.left_out.items()}
        return {"prompts_left_out": out, "candidates_dropped": dict(self.dropped)}

    def told(self) -> Iterator[str]:
        """Yield the counts as text."""
        if self.left_out:
            total = sum(map(len, self.left_out.values()))
            yield f"{formats.count(total, 'prompt')} left out: {'; '.join(self.reasons())}"
        if self.dropped:
            why = "; ".join(f"{formats.safe(w)} ({n:,})" for w, n in self.dropped.items())
            yield f"{formats.count(self.dropped.total(), 'candidate')} dropped: {why}"

    def reasons(self) -> Iterator[str]:
        """Yield why prompts were skipped, with the first lines."""
        for why, lines in self.left_out.items():
            named = ", ".join(map(str, lines[:_LINES_NAMED]))
            more = " and more" if len(lines) > _LINES_NAMED else ""
            yield f"{formats.safe(why)} (lines {named}{more})"


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
