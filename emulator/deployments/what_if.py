"""What a deployment would change, member by member; unset members of a resource are let be."""

from typing import Any

from starlette.types import ASGIApp

from emulator.deployments import templates
from emulator.deployments.calls import Calls
from emulator.deployments.parameters import is_secret
from emulator.deployments.preflight import open_ended, partly
from emulator.deployments.templates import Plan, Step

Json = Any
NOISE = ("etag", "systemData", "provisioningState")


async def changes(app: ASGIApp, call: dict[str, str], plan: Plan) -> list[dict[str, Json]]:
    """Every resource of the plan and of its group, with what would become of it."""
    calls = Calls(app, call)
    rows = [await _change(calls, plan, s) for s in plan.steps if s.wanted and not s.existing]
    named = {step.key for step in plan.steps}
    listed = await calls.ask("GET", f"{plan.scope.place.group_id}/resources", "2021-04-01")
    others = listed.json().get("value", []) if listed.status_code == 200 else []
    rows += [_ignored(row) for row in others if row["id"].lower() not in named]
    return sorted(rows, key=lambda row: str(row["resourceId"]).lower())


async def _change(calls: Calls, plan: Plan, step: Step) -> dict[str, Json]:
    hidden = frozenset(name for name, rules in plan.declared.items() if is_secret(rules))
    scope = plan.scope_of(step)
    veiled = type(scope)(**{**vars(scope), "hidden": hidden})
    wanted = partly(step.name, templates.body(step), veiled)
    after = {
        "apiVersion": step.version,
        "id": step.id,
        "name": step.name.rpartition("/")[2],
        "type": step.type,
        **wanted,
    }
    answer = await calls.ask("GET", step.id, step.version)
    row: dict[str, Json] = {"resourceId": step.id, "after": after}
    if answer.status_code != 200:
        return row | {"changeType": "Create"}
    before = _plain(answer.json())
    delta = _delta(before, wanted, "")
    change = "Modify" if delta else "NoChange"
    return row | {"changeType": change, "before": before, "delta": delta}


def _ignored(row: Json) -> dict[str, Json]:
    return {"resourceId": row["id"], "changeType": "Ignore", "before": row, "after": row}


def _plain(value: Json) -> Json:
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if not isinstance(value, dict):
        return value
    return {k: _plain(v) for k, v in value.items() if k not in NOISE}


def _delta(before: Json, after: dict[str, Json], path: str) -> list[dict[str, Json]]:
    """The differences in those members that the template sets."""
    rows: list[dict[str, Json]] = []
    for name, value in after.items():
        here = f"{path}.{name}" if path else name
        old = before.get(name)
        if isinstance(value, dict) and isinstance(old, dict):
            rows += _delta(old, value, here)
        elif not _same(old, value, name):
            kind = "Create" if old is None else "Modify"
            rows.append({"path": here, "propertyChangeType": kind, "before": old, "after": value})
    return rows


def _same(old: Json, new: Json, name: str) -> bool:
    """Whether nothing would change, as far as it can be known before the deployment runs."""
    if isinstance(new, str) and open_ended(new):
        return True
    if isinstance(new, dict):
        return isinstance(old, dict) and not _delta(old, new, "")
    if isinstance(new, list):
        if not isinstance(old, list) or len(old) != len(new):
            return False
        return all(_same(a, b, name) for a, b in zip(old, new, strict=True))
    if isinstance(new, str) and isinstance(old, str):
        loose = name == "location" or new.startswith("/subscriptions/")
        plain = (old.lower().replace(" ", ""), new.lower().replace(" ", ""))
        return plain[0] == plain[1] if loose else old == new
    return bool(old == new)
