"""What a node sends to the service: its registration, its boot report, and its heartbeats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from service.domain import tokens
from tests.world import SECRET
from trainer.contract import (
    PROTOCOL,
    EvictionNotice,
    Heartbeat,
    NodePhase,
    Registration,
)

if TYPE_CHECKING:
    from tests.scenario.machines.machine import Machine
    from tests.scenario.machines.supervisor import Supervisor

NODES = "/internal/nodes"
_REFUSED = "Error response from daemon: unauthorized: authentication required\n" * 10
_ENDED = (NodePhase.STOPPED, NodePhase.FAILED)


def registration(machine: Machine) -> dict[str, Any]:
    """Return what a node repeats until it has a seat, or has said why it cannot boot."""
    token = tokens.bootstrap_token(SECRET, machine.attempt_id)
    if machine.boots_never:
        report = f"phase=pull_image&said=gave_up&machine={machine.vm_id}"
        url = f"/internal/boots/{machine.attempt_id}?{report}"
        return {"method": "POST", "url": url} | authorized(token, _REFUSED)
    message = Registration(
        protocol=PROTOCOL,
        attempt_id=machine.attempt_id,
        vm_id=machine.vm_id,
        boot_id=f"boot-{machine.boots}",
        name=machine.vm_id,
        address="127.0.0.9",
        gpus=0,
    )
    return {"method": "POST", "url": NODES} | authorized(token, message.to_json())


def heartbeat(machine: Machine, supervisor: Supervisor) -> Heartbeat:
    """Return what the node says of itself now."""
    assert supervisor.seat is not None
    disk = machine.disk
    notice = EvictionNotice(event_id="event-1", not_before=0.0, seen_at=0.0)
    failed = disk.phase is NodePhase.FAILED
    return Heartbeat(
        epoch=supervisor.seat.epoch,
        seq=supervisor.seq,
        phase=disk.phase,
        generation=disk.generation,
        step=machine.step,
        free_port=29500,
        metrics=tuple(machine.unreported),
        committed=tuple(supervisor.committed),
        eviction=notice if machine.noticed else None,
        error="row 17 has no text" if failed else "",
        non_retryable=failed and machine.non_retryable,
        unhealthy="GPU 3 has fallen off the bus" if machine.unhealthy else "",
        broken=supervisor.broken if disk.phase in _ENDED else None,
    )


def authorized(token: str, body: str | None) -> dict[str, Any]:
    """Return the headers and the body of a request with this token."""
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    return {"content": body, "headers": headers}
