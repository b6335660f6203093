"""An index of the rows that are due, kept up by changes: no step looks at every VM."""

import heapq
import itertools
from collections.abc import Iterator

from emulator.core.rows import Path
from emulator.core.state import EmulatorState, InstanceRow, OperationRow, ScaleSetRow

OPERATIONS_KEPT = 3600.0  # seconds after their end; then polling answers NotFound
AT_ONCE = 0.0  # a time that is always over
Machine = tuple[ScaleSetRow, InstanceRow]


class Agenda:
    """Which operations and evictions are due, which VMs to boot and kill, and whose a token is."""

    def __init__(self, state: EmulatorState) -> None:
        self._state = state
        self._changes = state.ledger.follow()
        self._by_target: dict[str, dict[str, None]] = {}  # unfinished operations
        self._unsettled: dict[str, None] = {}  # on what some began or ended
        # A heap; what changed since lies in it still. The number keeps what is due at one
        # moment in order: ids are random, and the same input is to have the same outcome.
        self._times: list[tuple[float, int, Path]] = []
        self._numbers = itertools.count()
        self._overdue: dict[Path, None] = {}  # due, and not over yet
        self._doomed: dict[Path, None] = {}
        self._fresh: dict[Path, None] = {}
        self._by_token: dict[str, Path] = {}
        self._tokens: dict[Path, str] = {}
        for path in state.rows():
            self._refresh(path)

    def operations(self, target: str) -> list[OperationRow]:
        """Return the unfinished operations on one resource."""
        self._catch_up()
        rows = (self._state.operations.get(name) for name in self._by_target.get(target, ()))
        return [operation for operation in rows if operation]

    def unsettled(self) -> list[str]:
        """On what operations began or ended since the last call."""
        self._catch_up()
        targets = list(self._unsettled)
        self._unsettled.clear()
        return targets

    def under_way(self) -> Iterator[OperationRow]:
        """Every unfinished operation."""
        self._catch_up()
        names = [name for names in self._by_target.values() for name in names]
        return (o for name in names if (o := self._state.operations.get(name)))

    def due_operations(self, now: float) -> list[OperationRow]:
        """Return the operations whose time has come and that are not over."""
        rows = (row for row in self._due(now) if isinstance(row, OperationRow))
        return [row for row in rows if row.ended_at is None]

    def outdated_operations(self, now: float) -> list[OperationRow]:
        """Return the operations that ended too long ago to be asked about."""
        rows = (row for row in self._due(now) if isinstance(row, OperationRow))
        return [row for row in rows if row.ended_at is not None]

    def due_evictions(self, now: float) -> list[InstanceRow]:
        """Return the instances whose eviction is due."""
        return [row for row in self._due(now) if isinstance(row, InstanceRow)]

    def doomed(self) -> list[Machine]:
        """Return the instances that are to be killed."""
        self._catch_up()
        return list(self._instances(self._doomed))

    def fresh(self) -> list[Machine]:
        """Return the instances that are allocated and to be booted."""
        self._catch_up()
        return list(self._instances(self._fresh))

    def by_token(self, token: str) -> Machine | None:
        """Return the instance whose metadata service has this token."""
        self._catch_up()
        path = self._by_token.get(token)
        return next(self._instances([path]), None) if path else None

    def next_time(self, now: float) -> float | None:
        """When the next thing is due; None if nothing is going to be."""
        if self._due(now):
            return now
        while self._times:
            at, _, path = self._times[0]
            if self._time(path) == at:
                return at
            heapq.heappop(self._times)
        return None

    def _due(self, now: float) -> list[object]:
        self._catch_up()
        while self._times and self._times[0][0] <= now:
            at, _, path = heapq.heappop(self._times)
            if self._time(path) == at:
                self._overdue[path] = None
        return [self._state.row_at(path) for path in self._overdue]

    def _instances(self, paths: "dict[Path, None] | list[Path]") -> Iterator[Machine]:
        for path in paths:
            scale_set = self._state.scale_sets.get(path[1])
            if scale_set and (instance := scale_set.instances.get(path[3])):
                yield scale_set, instance

    def _catch_up(self) -> None:
        for path in self._changes.touched:
            self._refresh(path)
        self._changes.clear()

    def _refresh(self, path: Path) -> None:
        """Look at a row that changed, came or went."""
        match path:
            case ("scale_sets", _, "instances", _):
                self._refresh_instance(path)
            case ("operations", name):
                self._refresh_operation(name, self._state.operations.get(name))
            case _:
                return
        self._overdue.pop(path, None)
        if (at := self._time(path)) is not None:
            heapq.heappush(self._times, (at, next(self._numbers), path))

    def _refresh_instance(self, path: Path) -> None:
        row = self._state.row_at(path)
        instance = row if isinstance(row, InstanceRow) else None
        _set_member(self._doomed, path, is_member=bool(instance and instance.doom))
        _set_member(self._fresh, path, is_member=bool(instance and _bootable(instance)))
        token = instance.token if instance else None
        if (old := self._tokens.get(path)) != token:
            self._by_token.pop(old or "", None)
            self._tokens.pop(path, None)
            if token:
                self._by_token[token], self._tokens[path] = path, token

    def _refresh_operation(self, name: str, operation: OperationRow | None) -> None:
        if operation is None:
            return
        self._unsettled[operation.target] = None
        if operation.status == "InProgress":
            self._by_target.setdefault(operation.target, {})[name] = None
        elif open_ones := self._by_target.get(operation.target):
            open_ones.pop(name, None)
            if not open_ones:
                del self._by_target[operation.target]

    def _time(self, path: Path) -> float | None:
        """When the row wants to be looked at."""
        match self._state.row_at(path):
            case OperationRow(status="InProgress") as operation:
                return operation.due_at
            case OperationRow(ended_at=ended) if ended is not None:
                return ended + OPERATIONS_KEPT
            case InstanceRow(eviction=eviction) if eviction:
                return AT_ONCE if eviction.acknowledged else eviction.not_before
        return None


def _bootable(instance: InstanceRow) -> bool:
    waiting = instance.phase == "allocated" and not instance.booted
    return waiting and not instance.doom and not instance.stopped


def _set_member(paths: dict[Path, None], path: Path, *, is_member: bool) -> None:
    if is_member:
        paths[path] = None
    else:
        paths.pop(path, None)
