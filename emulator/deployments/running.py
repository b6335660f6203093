"""Deployments carried out: every resource as soon as those that it waits for are there.

How far one got is written down after every move, and putting a resource twice is harmless, so
a restart in between loses and doubles nothing.
"""

import asyncio
import string
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from starlette.types import ASGIApp

from emulator.core.errors import ArmError
from emulator.core.state import ResourceRow, group_id
from emulator.core.timestamps import timestamp
from emulator.deployments import parameters, records, templates
from emulator.deployments.calls import Answers, Calls, MissingAnswer, refusal
from emulator.deployments.expressions import NotYet, TemplateError, evaluate
from emulator.deployments.refusals import invalid_template
from emulator.deployments.scopes import TemplateScope
from emulator.deployments.templates import Step
from emulator.fabric import Fabric
from emulator.resources.resource_ids import parse

Json = Any
T = TypeVar("T")
TOO_MANY = 429  # requests: the next step asks again
TERMINAL_STATES = ("Succeeded", "Failed", "Canceled")


class Runner:
    """The chore that keeps every unfinished deployment moving."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def __call__(self, fabric: Fabric, _now: float) -> bool:
        """Look after the deployments; what they do they do outside of the step."""
        for key in [k for k, task in self._tasks.items() if task.done()]:
            if error := self._tasks.pop(key).exception():
                _fail_unexpectedly(fabric, key, error)
        for resource in list(fabric.state.resources.values()):
            if records.running(resource) and resource.key not in self._tasks:
                work = _advance(fabric, self._app, resource)
                self._tasks[resource.key] = asyncio.create_task(work)
        return False


async def _advance(fabric: Fabric, app: ASGIApp, resource: ResourceRow) -> None:
    await _Deployment(fabric, app, resource).advance()


def _fail_unexpectedly(fabric: Fabric, key: str, error: BaseException) -> None:
    """End a deployment that the emulator cannot carry on, so that no restart tries again."""
    sys.stderr.write("".join(traceback.format_exception(error)))
    resource = fabric.state.resources.get(key)
    if resource and records.running(resource):
        details = {"code": "InternalServerError", "message": "Encountered internal server error."}
        records.close(fabric, resource, provisioningState="Failed", error=details)


class _Deployment:
    """One unfinished deployment."""

    def __init__(self, fabric: Fabric, app: ASGIApp, resource: ResourceRow) -> None:
        self._fabric = fabric
        self._resource = resource  # the newest version
        run = resource.body["run"]
        self._calls = Calls(app, run["call"])
        path = parse(resource.id)
        assert path
        group = fabric.state.groups.get(group_id(path.subscription, path.group).lower())
        self._plan = None
        if group:
            place = records.deployment_place(group)
            self._plan = templates.plan(resource.body["template"], run["parameters"], place)

    async def advance(self) -> None:
        """Make every move that can be made now, and end the deployment after the last."""
        if self._plan is None:  # the group is gone
            self._end("Canceled")
            return
        steps = [step for step in self._plan.steps if step.enabled]
        moved = True
        while moved and self._is_running():
            moved = False
            for step in steps:
                moved = await self._move(step) or moved
        if not self._is_running() or any(self._has_state(step, "running") for step in steps):
            return
        failures = [self._state(step)["error"] for step in steps if self._has_state(step, "failed")]
        unstarted = [step for step in steps if self._has_state(step, "")]
        if unstarted and not failures:
            error = invalid_template(
                f"Circular dependency detected on resource: '{unstarted[0].id}'. Please see "
                "https://aka.ms/arm-syntax-resources for usage details."
            )
            failures = [error.body["error"]]
        if failures:
            self._end("Failed", error=_failed(self._resource.id, failures))
        else:
            await self._succeed(steps)

    def _is_running(self) -> bool:
        """Whether it is still to be carried on: it may have been cancelled or deleted."""
        stored = self._fabric.state.resources.get(self._resource.key)
        return stored is self._resource and records.running(self._resource)

    def _state(self, step: Step) -> dict[str, Json]:
        record: dict[str, Json] = self._resource.body["run"]["steps"].get(step.key, {"state": ""})
        return record

    def _has_state(self, step: Step, state: str) -> bool:
        return bool(self._state(step)["state"] == state)

    async def _move(self, step: Step) -> bool:
        """Do what can be done about one resource; say whether anything was."""
        if not self._is_running():
            return False
        if self._has_state(step, "running"):
            return await self._poll(step)
        return self._has_state(step, "") and self._ready(step) and await self._start(step)

    def _ready(self, step: Step) -> bool:
        assert self._plan
        need = [s for s in self._plan.steps if s.key in step.waits_for]
        return all(not s.enabled or self._has_state(s, "done") for s in need)

    async def _start(self, step: Step) -> bool:
        try:
            body = await self._settled(lambda scope: dict(evaluate(templates.body(step), scope)))
        except NotYet:
            return False
        except TemplateError as error:
            self._fail(step, _unprocessable(step, error))
            return True
        except ArmError as error:
            self._fail(step, error.body["error"])
            return True
        answer = await self._calls.request("PUT", step.id, step.version, body)
        if answer.status_code == TOO_MANY:
            return False
        if answer.status_code >= 400:
            self._fail(step, refusal(answer).body["error"])
            return True
        poll = answer.headers.get("Azure-AsyncOperation", "")
        document = answer.json() if answer.content else {}
        if _provisioning(document) in ("Succeeded", "") and not poll:
            self._write(step, "done")
        else:
            self._write(step, "running", poll=poll)
        return True

    async def _poll(self, step: Step) -> bool:
        """Whether a resource that takes its time is there now."""
        poll = self._state(step)["poll"]
        answer = await self._calls.request("GET", *((poll,) if poll else (step.id, step.version)))
        if answer.status_code == TOO_MANY:
            return False
        if answer.status_code >= 400:
            self._fail(step, refusal(answer).body["error"])
            return True
        document = answer.json()
        status = document["status"] if poll else _provisioning(document)
        if status not in TERMINAL_STATES:
            return False
        if status == "Succeeded":
            self._write(step, "done")
        else:
            self._fail(step, document.get("error") or {"code": status, "message": "It failed."})
        return True

    async def _settled(self, value: Callable[[TemplateScope], T]) -> T:
        """Return the result of ``value``, fetching the resources that its expressions refer to."""
        assert self._plan
        pending = (s for s in self._plan.steps if s.enabled)
        missing = {s.key for s in pending if not self._has_state(s, "done")}
        answers = Answers(self._calls, missing)
        scope = replace(self._plan.scope, cloud=answers)
        while True:
            try:
                return value(scope)
            except MissingAnswer as missing_answer:
                await answers.fetch(missing_answer)

    async def _succeed(self, steps: list[Step]) -> None:
        assert self._plan
        outputs: dict[str, Json] = {}
        for name, rules in self._plan.outputs.items():
            try:
                output = await self._settled(lambda scope, r=rules: _output(r, scope))  # type: ignore[misc] # a default, no parameter
            except (TemplateError, NotYet, ArmError) as error:
                message = f"The template output '{name}' is not valid: {error}"
                error_body = {"code": "DeploymentOutputEvaluationFailed", "message": message}
                self._end("Failed", error=error_body)
                return
            if output is not None:
                outputs[_camel_case(name)] = output
        self._end("Succeeded", outputs=outputs, outputResources=[{"id": s.id} for s in steps])

    def _fail(self, step: Step, error: dict[str, Json]) -> None:
        self._write(step, "failed", error={**error, "target": step.id})

    def _write(self, step: Step, state: str, **members: Json) -> None:
        """Write a move down."""
        body = self._resource.body
        run = body["run"] | {
            "steps": body["run"]["steps"] | {step.key: {"state": state, **members}}
        }
        ended = [self._operation(step, members.get("error"))] if state != "running" else []
        changes = {"run": run, "operations": [*body["operations"], *ended]}
        if self._is_running():
            self._resource = self._fabric.state.change(self._resource, body=body | changes)
            self._fabric.changed()

    def _operation(self, step: Step, error: Json) -> dict[str, Json]:
        count, path = len(self._resource.body["operations"]) + 1, parse(step.id)
        properties: dict[str, Json] = {
            "provisioningOperation": "Create",
            "provisioningState": "Failed" if error else "Succeeded",
            "timestamp": timestamp(self._fabric.now()),
            "statusCode": "Conflict" if error else "OK",
            "targetResource": {
                "id": step.id,
                "resourceType": step.type,
                "resourceName": path.full_name if path else step.id.rpartition("/")[2],
            },
        }
        if error:
            properties["statusMessage"] = {"error": error}
        name = f"{count:016X}"
        id_ = f"{self._resource.id}/operations/{name}"
        return {"id": id_, "operationId": name, "properties": properties}

    def _end(self, state: str, **members: Json) -> None:
        now = self._fabric.now()
        seconds = now - self._resource.created_at
        if self._is_running():
            times = {"timestamp": timestamp(now), "duration": f"PT{seconds:.3f}S"}
            ended = {"provisioningState": state, **times, **members}
            records.close(self._fabric, self._resource, **ended)
            self._fabric.changed()


def _failed(deployment_id: str, details: list[dict[str, Json]]) -> dict[str, Json]:
    return {
        "code": "DeploymentFailed",
        "target": deployment_id,
        "message": "At least one resource deployment operation failed. Please list deployment "
        "operations for details. Please see https://aka.ms/arm-deployment-operations for usage "
        "details.",
        "details": details,
    }


def _camel_case(name: str) -> str:
    """Return the name of an output in camel case, as ARM answers it: VMSS is vmss, RG_Id rG_Id.

    From Azure/bicep issue 9360, Azure/azure-dev issue 512, and azure-cli, which reads `vmss`.
    """
    capitals = len(name) - len(name.lstrip(string.ascii_uppercase))
    few = capitals if capitals == len(name) else max(capitals - 1, 1)
    return name[:few].lower() + name[few:]


def _output(rules: Json, scope: TemplateScope) -> dict[str, Json] | None:
    if not evaluate(rules.get("condition", True), scope):
        return None
    kind = str(rules["type"])
    output: dict[str, Json] = {"type": kind[:1].upper() + kind[1:]}
    if not parameters.is_secret(rules):
        output["value"] = evaluate(rules["value"], scope)
    return output


def _unprocessable(step: Step, error: TemplateError) -> dict[str, Json]:
    return {
        "code": "InvalidTemplate",
        "message": f"Unable to process template language expressions for resource '{step.id}'. "
        f"'{error}'",
    }


def _provisioning(document: Json) -> str:
    properties = document.get("properties") if isinstance(document, dict) else None
    return str((properties or {}).get("provisioningState") or "")
