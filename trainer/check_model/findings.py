"""Findings of a model check: faults, which refuse the folder, and warnings."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class ModelFindings:
    """Sentences for the person who stages the model; each names a file or tensor and a remedy."""

    faults: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def __add__(self, other: "ModelFindings") -> "ModelFindings":
        return ModelFindings(self.faults + other.faults, self.warnings + other.warnings)
