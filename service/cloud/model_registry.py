"""The seam to a registry of models: a name and a version for what lies in Blob, and its tags.

Nothing is copied: an entry says where the files are, and lives on when they are deleted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class RegisteredModel:
    """One version of a model, and where its folder is."""

    name: str
    version: str
    url: str  # of the folder in Blob, without a SAS
    tags: Mapping[str, str]


class ModelRegistry(Protocol):
    """Where the final models of jobs are registered."""

    async def register(self, model: RegisteredModel) -> None:
        """Register it; what is there under this name and version stays. Raises CloudError."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...
