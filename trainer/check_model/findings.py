"""What a check of a model's folder found: faults, which refuse it, and warnings."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Findings:
    """Sentences for the person who stages the model; each names files or tensors, and a remedy."""

    faults: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def __add__(self, other: "Findings") -> "Findings":
        return Findings(self.faults + other.faults, self.warnings + other.warnings)
