"""Keep a copy of every staged base model in the storage account of each region.

Level-triggered: it compares the accounts, and has them copy from the main one. Copies are never
deleted: a running job may still need a model that was removed from the main account.
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
    """Copies base models; remembers which failures it has logged."""

    store: BlobStore
    regional: Mapping[str, BlobStore]  # region -> the account there
    now: Callable[[], datetime]
    _logged: set[tuple[str, str]] = field(default_factory=set)

    async def run_once(self) -> list[str]:
        """Advance every copy; return "region/container" of those that became whole."""
        try:
            staged = await self.store.list_containers(models.PREFIX) if self.regional else []
        except StorageError as fault:
            log.warning("models.not_listed", extra={"cause": str(fault)})
            return []
        pairs = [(region, container.name) for region in self.regional for container in staged]
        return [
            f"{region}/{name}" for region, name in pairs if await self._copy_model(region, name)
        ]

    async def _copy_model(self, region: str, name: str) -> bool:
        try:
            is_complete = await regions.copy_model(
                self.store, self.regional[region], name, self.now()
            )
        except (StorageError, ValueError) as fault:
            self._log_once(region, name, str(fault))
            return False
        if is_complete:
            log.info("models.copied", extra={"region": region, "model": name})
        return is_complete

    def _log_once(self, region: str, name: str, cause: str) -> None:
        """Log a failure once per process and model: it may last for days, and jobs run without."""
        if (region, name) not in self._logged:
            self._logged.add((region, name))
            log.warning(
                "models.not_copied", extra={"region": region, "model": name, "cause": cause}
            )
