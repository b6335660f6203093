"""A planted fault, as the state keeps it."""

from dataclasses import dataclass
from typing import ClassVar

from emulator.core.rows import FrozenRow


@dataclass(frozen=True, slots=True)
class FaultRow(FrozenRow):
    """A fault that is planted; see `emulator.faults.planted`. Empty members match anything."""

    table: ClassVar[str] = "faults"
    id: str
    kind: str
    method: str = ""
    path: str = ""  # a regular expression, found somewhere in the path
    region: str = ""
    vm_size: str = ""
    count: int | None = None  # strikes so often; None: as long as it is there
    until: float | None = None
    status: int = 500
    code: str = ""
    message: str = ""
    retry_after: int = 10
    delay: float | None = None
    when: str = "before"
    instances: int = 1
    policy: str = ""
    struck: int = 0

    def live(self, now: float) -> bool:
        """Whether it can strike still."""
        worn_out = self.count is not None and self.struck >= self.count
        return not worn_out and (self.until is None or now < self.until)
