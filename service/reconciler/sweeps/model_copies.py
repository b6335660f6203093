"""Keeps a copy of every staged base model in the storage account of every region that has one.

Level-triggered: it compares the accounts, and lets them copy among themselves. What was copied
is never deleted: a model that left the main account may still be what a running job started from.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from service.operations.models import models, regions
from service.storage.store import BlobStore, StorageError

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ModelCopies:
    """Holds nothing but what it has complained of."""

    store: BlobStore
    regional: Mapping[str, BlobStore]  # region -> the account there
    now: Callable[[], datetime]
    _told: set[tuple[str, str]] = field(default_factory=set)

    async def run_once(self) -> list[str]:
        """Go on with every copy; return "region/container" of those that became whole."""
        try:
            staged = await self.store.list_containers(models.PREFIX) if self.regional else []
        except StorageError as fault:
            log.warning("models.not_listed", extra={"cause": str(fault)})
            return []
        pairs = [(region, where.name) for region in self.regional for where in staged]
        return [f"{region}/{name}" for region, name in pairs if await self._copy(region, name)]

    async def _copy(self, region: str, name: str) -> bool:
        try:
            whole = await regions.copy_model(self.store, self.regional[region], name, self.now())
        except (StorageError, ValueError) as fault:
            self._complain(region, name, str(fault))
            return False
        if whole:
            log.info("models.copied", extra={"region": region, "model": name})
        return whole

    def _complain(self, region: str, name: str, cause: str) -> None:
        """Once per process and model: it may stay so for days, and jobs run without."""
        if (region, name) not in self._told:
            self._told.add((region, name))
            log.warning(
                "models.not_copied", extra={"region": region, "model": name, "cause": cause}
            )
