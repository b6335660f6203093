"""What can be said about a template before anything of it is made."""

import uuid
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route

from emulator.access.actions import Need, needed
from emulator.access.enforcement import ArmCaller, permitted
from emulator.core.errors import ArmError, invalid
from emulator.deployments import templates
from emulator.deployments.expressions import NotYet, TemplateError, evaluate, is_expression
from emulator.deployments.refusals import invalid_resource
from emulator.deployments.scopes import TemplateScope
from emulator.deployments.templates import DeploymentPlan, Step
from emulator.fabric import Fabric
from emulator.resources.kinds import Draft
from emulator.resources.resource_ids import parse
from emulator.resources.routes import PART
from emulator.resources.table import find

Json = Any
UNFIT = "InvalidTemplateDeployment"
CATCH_ALL = {path for _, path, _ in PART.arm}


def check(fabric: Fabric, request: Request, name: str, plan: DeploymentPlan) -> None:
    """Raise ArmError with all that ARM or the resource providers have against a plan."""
    caller: ArmCaller = request.scope["caller"]
    needs = [(s, needed("PUT", s.id)) for s in plan.steps if s.enabled]
    lacking = [(s, n) for s, n in needs if n and not permitted(fabric, caller, n)]
    if lacking:
        prefix = "The template deployment failed with error: "
        if len(lacking) > 1:
            prefix = "Deployment failed with multiple errors: "
        reasons = ":".join(_describe_missing(caller, step, need) for step, need in lacking)
        raise invalid(f"{prefix}'{reasons}'.", UNFIT)
    details = []
    for step in plan.steps:
        if not step.enabled:
            continue
        body = _evaluate_known(step.name, templates.body(step), plan.scope)
        try:
            _check(fabric, request.app, step, body)
        except ArmError as error:
            details.append({**error.body["error"], "target": step.id})
    if details:
        raise ArmError(
            400,
            UNFIT,
            f"The template deployment '{name}' is not valid according to the validation procedure. "
            f"The tracking id is '{uuid.uuid4()}'. See inner errors for details.",
            details=details,
        )


def _evaluate_known(name: str, value: Json, scope: TemplateScope) -> Json:
    """Evaluate the expressions in a value that need no running deployment."""
    try:
        return evaluate(value, scope)
    except TemplateError as error:
        raise invalid_resource(name, str(error)) from None
    except NotYet:
        if isinstance(value, dict):
            return {k: _evaluate_known(name, v, scope) for k, v in value.items()}
        return (
            [_evaluate_known(name, v, scope) for v in value] if isinstance(value, list) else value
        )


def _is_open(value: Json) -> bool:
    """Whether there is an expression left in a value."""
    if isinstance(value, dict | list):
        return any(map(_is_open, value.values() if isinstance(value, dict) else value))
    return isinstance(value, str) and is_expression(value)


def _describe_missing(caller: ArmCaller, step: Step, need: Need) -> str:
    return (
        f"Authorization failed for template resource '{step.name}' of type '{step.type}'. The "
        f"client '{caller.client_id}' with object id '{caller.object_id}' does not have "
        f"permission to perform action '{need.action}' at scope '{need.scope}'."
    )


def _check(fabric: Fabric, app: Starlette, step: Step, body: Json) -> None:
    if _is_served(app, step.id):
        return
    path = parse(step.id)
    if path is None:
        text = f"The emulator cannot deploy '{step.type}' at this scope."
        raise invalid(text, "InvalidResourceType")
    kind = find(path, step.version)
    kind.check_name(path.name)
    if _is_open(body):
        return
    old = fabric.state.resources.get(path.key)
    try:
        kind.complete(Draft(fabric, path, body, old))
    except ArmError as error:
        if error.code != "InvalidResourceReference":  # it may be in the template itself
            raise


def _is_served(app: Starlette, resource_id: str) -> bool:
    """Whether a route of its own, and not that for any provider, puts such a resource."""
    routes = (r for r in app.routes if isinstance(r, Route) and r.path not in CATCH_ALL)
    return any("PUT" in (r.methods or ()) and r.path_regex.match(resource_id) for r in routes)
