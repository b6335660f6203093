"""/internal/nodes: the node protocol (docs/contract.md). Nodes call; nothing calls them.

It is not part of the public API. Its messages are those of ``trainer.contract``, and its routes are
Starlette's, because FastAPI has nothing to parse here and nodes send most requests. A token is
checked before the body is read.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from service.api.deps import Parts, bearer, parts_of
from service.api.http.requests import read_body
from service.db.attempts import nodes as node_rows
from service.db.attempts.heartbeats import StandingDirective
from service.db.core import notify
from service.domain import tokens
from service.domain.errors import (
    Gone,
    InvalidApiKey,
    InvalidRequest,
    MissingParameter,
    NotSeenYet,
)
from service.domain.lifecycle.boot_report import BootPhase, BootReport, BootStatus
from service.operations.core import worker_thread
from service.operations.nodes import boots, nodes
from service.operations.nodes.nodes import Standing
from trainer.contract import (
    OLDEST_PROTOCOL,
    PROTOCOL,
    Directive,
    DirectiveKind,
    Heartbeat,
    HeartbeatAnswer,
    Message,
    Registered,
    Registration,
)

M = TypeVar("M", bound=Message)
_MAX_REGISTRATION_BYTES = 64 * 1024  # decoded before its token can be checked
_MAX_HEARTBEAT_BYTES = 4 * 1024 * 1024  # far beyond what contract.py lets a supervisor send at once
_MAX_REPORT_BYTES = 16 * 1024  # of a boot: more than ten tries of 400 bytes
_MACHINE = re.compile(r"[\w.-]{1,100}", re.ASCII)
_MAX_NUMBER = 2**31  # of an int in PostgreSQL


async def register(request: Request) -> Response:
    """Register a machine as a node; answer its id, token and grants."""
    parts = parts_of(request)
    registration = await _read_message(request, Registration, _MAX_REGISTRATION_BYTES)
    _require_token(request, tokens.bootstrap_token, registration.attempt_id)
    if not OLDEST_PROTOCOL <= registration.protocol <= PROTOCOL:
        raise InvalidRequest(f"This service speaks protocol {PROTOCOL}. Use the image it names.")
    now = parts.now()
    standing = await parts.registrations.register(registration, now)
    if standing is None:
        raise NotSeenYet(
            f"VM {registration.vm_id} is not among the instances that Azure lists for this "
            "attempt yet. Register again in a few seconds."
        )
    return _answer(
        Registered(
            node_id=standing.node.node_id,
            node_token=tokens.node_token(parts.secret, standing.node.node_id),
            epoch=standing.node.epoch,
            now=now.timestamp(),
            stop_by=_stop_by(parts, now, standing.attempt.stop_by),
            grants=await parts.granter.grant(standing, now),
        )
    )


async def boot(request: Request) -> Response:
    """Record the progress of a booting machine that has no supervisor yet."""
    parts, attempt_id = parts_of(request), request.path_params["attempt_id"]
    _require_token(request, tokens.bootstrap_token, attempt_id)
    text = (await read_body(request, _MAX_REPORT_BYTES)).decode(errors="replace")
    report = _parse_report(request.query_params, nodes.storable_text(text))
    async with parts.engine.begin() as conn:
        await boots.record(conn, attempt_id, report, parts.now())
    return Response(status_code=204)


async def heartbeat(request: Request) -> Response:
    """Record a heartbeat; a refusal is raised only after the data is stored."""
    parts, node_id = parts_of(request), request.path_params["node_id"]
    _require_token(request, tokens.node_token, node_id)
    message, now = await _read_message(request, Heartbeat, _MAX_HEARTBEAT_BYTES), parts.now()
    answer = await parts.heartbeats.record(node_id, message, now)
    return _answer(
        HeartbeatAnswer(
            now=now.timestamp(),
            stop_by=_stop_by(parts, now, answer.stop_by),
            directive_seq=answer.directive_seq,
        )
    )


async def directive(request: Request) -> Response:
    """Wait for a directive newer than ``after``; answer CARRY_ON when none comes for a while."""
    parts, node_id = parts_of(request), request.path_params["node_id"]
    _require_token(request, tokens.node_token, node_id)
    after, epoch = _parse_number(request, "after"), _parse_number(request, "epoch")
    seconds = min(_parse_number(request, "wait"), parts.long_poll.total_seconds())
    deadline = asyncio.get_running_loop().time() + seconds
    with parts.drain.polling(f"node:{node_id}") as changed:
        while True:
            order = await parts.heartbeats.find_directive(node_id, after)
            if order is not None and order.directive_seq < after:
                order = await _raise_directive_number(parts, node_id, after)
            if order is not None:
                _check_epoch(epoch, order.epoch)
            if order is None or _is_new(order, after):
                break
            remaining_s = deadline - asyncio.get_running_loop().time()
            if (
                remaining_s <= 0
                or not await notify.wait(changed, remaining_s)
                or parts.drain.has_begun
            ):
                if parts.granter.is_renewal_minute(order.registered_at, parts.now()):
                    break
                return _carry_on_directive(parts, after, order)
    if order is not None and order.is_attempt_over:
        raise Gone(nodes.ATTEMPT_IS_OVER)
    if order is not None and not _needs_grants(parts, order):
        return _answer(_brief_directive(parts, order))
    async with parts.reading.connect() as conn:
        standing = await nodes.find_standing(conn, node_id)  # raises Gone and NodeNotFound
    _check_epoch(epoch, standing.node.epoch)
    return _answer(await _full_directive(parts, standing, after))


def _check_epoch(reported: int, current: int) -> None:
    """Refuse an earlier boot of the node."""
    if reported != current:
        raise nodes.stale_boot_error()


async def _raise_directive_number(
    parts: Parts, node_id: str, after: int
) -> StandingDirective | None:
    """Raise a restored database's directive number to the node's; return the directive.

    Without it the node would ignore as many new directives as the database lost.
    """
    async with parts.engine.begin() as conn:
        await node_rows.record_acknowledged(conn, node_id, after)
    return await parts.heartbeats.find_directive(node_id, after)


def _is_new(order: StandingDirective, after: int) -> bool:
    return order.is_attempt_over or order.directive_seq > after


def _brief_directive(parts: Parts, order: StandingDirective) -> Directive:
    """Return the directive of a node whose grants are fresh."""
    now, kind = parts.now(), order.kind
    if kind is DirectiveKind.START and order.generation is None:  # a newer generation exists
        kind = DirectiveKind.STOP
    return Directive(
        seq=order.directive_seq,
        kind=kind,
        now=now.timestamp(),
        stop_by=_stop_by(parts, now, order.stop_by),
        number=order.number,
        generation=order.generation,
    )


def _needs_grants(parts: Parts, order: StandingDirective) -> bool:
    """Return whether the node's grants should be renewed."""
    return parts.granter.should_renew(order.registered_at, parts.now())


def _carry_on_directive(parts: Parts, after: int, order: StandingDirective) -> Response:
    """Answer CARRY_ON; the node polls again at once."""
    now = parts.now()
    stop_by = _stop_by(parts, now, order.stop_by)
    directive = Directive(
        seq=after, kind=DirectiveKind.CARRY_ON, now=now.timestamp(), stop_by=stop_by
    )
    return _answer(directive)


async def _full_directive(parts: Parts, standing: Standing, after: int) -> Directive:
    """Return the node's directive, with fresh grants where they should be renewed."""
    now, node = parts.now(), standing.node
    kind, number, generation = node.directive_kind, node.directive_number, None
    if node.directive_seq <= after:
        kind, number = DirectiveKind.CARRY_ON, 0
    if kind is DirectiveKind.START:
        async with parts.reading.connect() as conn:
            generation = await nodes.find_generation(conn, node.attempt_id, number)
        if generation is None:  # a newer generation exists
            kind = DirectiveKind.STOP
    granted_at = datetime.fromtimestamp(standing.registered_at, UTC)
    renew = parts.granter.should_renew(granted_at, now)
    return Directive(
        seq=max(node.directive_seq, after),
        kind=kind,
        now=now.timestamp(),
        stop_by=_stop_by(parts, now, standing.attempt.stop_by),
        number=number,
        generation=generation,
        grants=await parts.granter.grant(standing, now) if renew else None,
    )


def _parse_report(query: Mapping[str, str], text: str) -> BootReport:
    machine = query.get("machine", "")
    try:
        phase, status = BootPhase(query.get("phase", "")), BootStatus(query.get("said", ""))
    except ValueError as error:
        raise InvalidRequest(f"Invalid boot report: {error!s:.100}.") from None
    if not _MACHINE.fullmatch(machine):
        raise InvalidRequest("machine: not a valid machine name.", param="machine")
    return BootReport(phase=phase, status=status, machine=machine, text=text)


def _parse_number(request: Request, name: str) -> int:
    text = request.query_params.get(name)
    if text is None:
        raise MissingParameter(f"{name} is missing.", param=name)
    try:
        number = int(text)
    except ValueError:
        raise InvalidRequest(f"{name} is {text!r:.40}, not a whole number.", param=name) from None
    if not -_MAX_NUMBER <= number < _MAX_NUMBER:
        raise InvalidRequest(f"{name} is not between -2^31 and 2^31.", param=name)
    return number


async def _read_message(request: Request, message: type[M], max_bytes: int) -> M:
    body = await read_body(request, max_bytes)
    try:
        if len(body) > worker_thread.LARGE_BYTES:
            return await worker_thread.run_in_worker(message.from_json, body)
        return message.from_json(body)
    except ValueError as error:
        raise InvalidRequest(f"{message.__name__}: {error}") from None


def _require_token(request: Request, derive: Callable[[str, str], str], name: str) -> None:
    """Raise InvalidApiKey unless the token was derived from an accepted secret and this name."""
    parts, token = parts_of(request), bearer(request.headers.get("authorization"))
    secrets = filter(None, (parts.secret, parts.accepted_secret))
    if not any(tokens.is_same(token, derive(secret, name)) for secret in secrets):
        raise InvalidApiKey("This token is not valid here. Register with the bootstrap token.")


def _stop_by(parts: Parts, now: datetime, money_lasts: datetime | None) -> float:
    """Return when the node must stop at the latest, by its job's budget."""
    outage = now + parts.outage
    return (min(outage, money_lasts) if money_lasts else outage).timestamp()


def _answer(message: Message) -> Response:
    return Response(message.to_json(), media_type="application/json")


ROUTES = [
    Route("/internal/nodes", register, methods=["POST"]),
    Route("/internal/boots/{attempt_id}", boot, methods=["POST"]),
    Route("/internal/nodes/{node_id}/heartbeat", heartbeat, methods=["POST"]),
    Route("/internal/nodes/{node_id}/directive", directive, methods=["GET"]),
]
