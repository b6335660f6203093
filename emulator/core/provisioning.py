"""What a scale set's provisioning state says: one rule, whatever begins and ends beside it."""

from collections.abc import Iterable

from emulator.core.state import EmulatorState, OperationRow, ScaleSetRow

DELETING = ("delete", "delete_group")


def settle(state: EmulatorState, scale_set: ScaleSetRow, under_way: Iterable[OperationRow]) -> None:
    """Say what is going on, or how it ended; ``under_way`` are all that concern the scale set."""
    found = _state(scale_set, [o for o in under_way if not o.alone])
    if scale_set.provisioning_state != found:
        state.change(scale_set, provisioning_state=found)


def _state(scale_set: ScaleSetRow, under_way: list[OperationRow]) -> str:
    if any(operation.kind in DELETING for operation in under_way):
        return "Deleting"
    if under_way:
        return "Creating" if scale_set.provisioning_state == "Creating" else "Updating"
    return "Failed" if scale_set.error else "Succeeded"
