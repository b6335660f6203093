"""The seam to a registry of models: name, version and tags of a model in Blob.

Nothing is copied: an entry names the files' location, and stays when they are deleted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class RegisteredModel:
    """One version of a model and the URL of its folder."""

    name: str
    version: str
    url: str  # of the folder in Blob, without a SAS
    tags: Mapping[str, str]


class ModelRegistry(Protocol):
    """Where the final models of jobs are registered."""

    async def register(self, model: RegisteredModel) -> None:
        """Register a version; an existing entry stays as it is. Raises CloudError."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...
