"""What a list of instances is asked for: $filter, $select and $expand, as far as Azure has them."""

import re
from collections.abc import Callable
from typing import Any

from starlette.requests import Request

from emulator.errors import ArmError, invalid

Body = dict[str, Any]
AND = re.compile(r"\s+and\s+", re.IGNORECASE)
STARTS = re.compile(
    r"startswith\(\s*instanceView/statuses/code\s*,\s*'([^']*)'\s*\)(?:\s+eq\s+(true|false))?",
    re.IGNORECASE,
)
LATEST = re.compile(r"properties/latestModelApplied\s+eq\s+(true|false)", re.IGNORECASE)
STATE = re.compile(r"(?:properties/)?provisioningState\s+eq\s+'([^']*)'", re.IGNORECASE)
OF_SET = re.compile(r"'?virtualMachineScaleSet/id'?\s+eq\s+'([^']*)'", re.IGNORECASE)
SELECTED = {"instanceview": None, "instanceview/statuses": "statuses"}


def instance_filter(request: Request) -> Callable[[Body], bool]:
    """The filter over instances with their instance view, or ArmError."""
    text = request.query_params.get("$filter", "").strip()
    tests = [_test(clause.strip()) for clause in AND.split(text)] if text else []
    return lambda body: all(test(body) for test in tests)


def scale_set_filter(request: Request) -> str:
    """The id of the scale set to whose virtual machines a list is narrowed; empty for all."""
    text = request.query_params.get("$filter", "").strip()
    if not text:
        return ""
    if found := OF_SET.fullmatch(text):
        return found[1].lower()
    raise _unknown(text)


def selected(request: Request, body: Body) -> Body:
    """The instance with only what $select names of it."""
    text = request.query_params.get("$select", "").strip().lower()
    if not text:
        return body
    wanted = [name.strip() for name in text.split(",")]
    if unknown := [name for name in wanted if name not in SELECTED]:
        raise invalid(
            f"The value '{unknown[0]}' of parameter '$select' is not allowed. Allowed values are: "
            "instanceView, instanceView/statuses.",
            target="$select",
        )
    view = body["properties"].get("instanceView")
    if view is not None and "instanceview" not in wanted:
        view = {"statuses": view["statuses"]}
    properties = {} if view is None else {"instanceView": view}
    return {k: body[k] for k in ("id", "name", "instanceId")} | {"properties": properties}


def _test(clause: str) -> Callable[[Body], bool]:
    if found := STARTS.fullmatch(clause):
        prefix, wanted = found[1].lower(), (found[2] or "true").lower() == "true"
        return lambda body: _has_code(body, prefix) is wanted
    if found := LATEST.fullmatch(clause):
        latest = found[1].lower() == "true"
        return lambda body: body["properties"]["latestModelApplied"] is latest
    if found := STATE.fullmatch(clause):
        state = found[1].lower()
        return lambda body: body["properties"]["provisioningState"].lower() == state
    raise _unknown(clause)


def _has_code(body: Body, prefix: str) -> bool:
    statuses = body["properties"]["instanceView"]["statuses"]
    return any(status["code"].lower().startswith(prefix) for status in statuses)


def _unknown(text: str) -> ArmError:
    return invalid(f"The filter '{text[:200]}' is not supported.", "BadRequest", "$filter")
