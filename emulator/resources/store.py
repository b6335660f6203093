"""Resources in the state: looked up, put, deleted, shown. What requests and deployments share."""

import copy
import uuid
from dataclasses import replace
from typing import Any

from emulator.arm.tags import tags_of
from emulator.core.errors import ArmError, resource_not_found
from emulator.core.state import ResourceRow
from emulator.fabric import Fabric
from emulator.resources.kinds import Draft, Json, ResourceKind, rows
from emulator.resources.load_balancers import FILLED
from emulator.resources.resource_ids import ResourcePath

MODEL = ("location", "tags", "sku", "kind", "identity", "zones", "plan", "properties")
INSIDE = ("subnets", "inboundNatRules")  # are requested by themselves too
PARTS = ("subnets", "securityRules", "defaultSecurityRules", *FILLED)


def lookup(fabric: Fabric, path: ResourcePath) -> ResourceRow | None:
    """Return the resource that a path names; subnets are looked up in their network."""
    if (above := path.parent) is None or path.types[-1] not in INSIDE:
        return fabric.state.resources.get(path.key)
    if (parent := fabric.state.resources.get(above.key)) is None:
        return None
    rows = (r for r in _rows(parent, path) if str(r["name"]).lower() == path.name.lower())
    return next((_inside(parent, path, row) for row in rows), None)


def listed(fabric: Fabric, path: ResourcePath, kind: ResourceKind) -> list[ResourceRow]:
    """Return the resources that a list path names."""
    if (above := path.parent) and path.types[-1] in INSIDE:
        parent = fabric.state.resources.get(above.key)
        return [_inside(parent, path, row) for row in _rows(parent, path)] if parent else []
    inside = path.key + "/"
    same = (r for r in fabric.state.resources.values() if r.key.startswith(inside))
    return [r for r in same if r.type.lower() == kind.type.lower()]


def put(fabric: Fabric, path: ResourcePath, kind: ResourceKind, body: Json) -> ResourceRow:
    """Create or replace; the caller writes the state down. ArmError if Azure would refuse."""
    _check_parent(fabric, path)
    kind.check_name(path.name)
    old = fabric.state.resources.get(path.key)
    draft = Draft(fabric, path, {k: copy.deepcopy(body[k]) for k in MODEL if k in body}, old)
    if "tags" in draft.body:
        draft.body["tags"] = tags_of(draft.body)
    if (above := path.parent) and path.types[-1] in INSIDE:
        return _put_inside(fabric, fabric.state.resources[above.key], path, body)
    kind.complete(draft)
    draft.properties["provisioningState"] = "Succeeded"
    if path.namespace.lower() == "microsoft.network":
        draft.properties["resourceGuid"] = str(uuid.uuid5(uuid.NAMESPACE_URL, path.key))
    resource = ResourceRow(
        id=old.id if old else path.id,
        type=kind.type,
        location=str(draft.body.get("location", "")),
        body=draft.body,
        created_at=old.created_at if old else fabric.now(),
        etag=old.etag + 1 if old else 1,
    )
    return fabric.state.put(resource)


def delete(fabric: Fabric, resource: ResourceRow) -> None:
    """Delete one with all its parts."""
    above, _, name = resource.key.rpartition("/")
    parent = fabric.state.resources.get(above.rpartition("/")[0])
    if parent and resource.key not in fabric.state.resources:
        part = resource.type.rpartition("/")[2]
        remaining = [r for r in parent.body["properties"][part] if str(r["name"]).lower() != name]
        fabric.state.change(parent, body=_with_rows(parent, part, remaining))
    for key, row in list(fabric.state.resources.items()):
        if f"{key}/".startswith(f"{resource.key}/"):
            fabric.state.remove(row)


def resource_as_json(resource: ResourceRow) -> dict[str, Any]:
    """Return a resource as ARM answers it; its parts that are resources have ids too."""
    etag = f'"{resource.etag}"'
    header = {"id": resource.id, "name": resource.name, "type": resource.type, "etag": etag}
    body = {**header, **copy.deepcopy(resource.body)}
    for part in PARTS:
        for row in rows(body["properties"], part):
            row.setdefault("id", f"{resource.id}/{part}/{row.get('name')}")
            row.setdefault("type", f"{resource.type}/{part}")
            row.setdefault("etag", etag)
            row.setdefault("properties", {}).setdefault("provisioningState", "Succeeded")
    return body


def not_found(path: ResourcePath) -> ArmError:
    """There is no such resource."""
    return resource_not_found(f"{path.type}/{path.full_name}", path.group)


def _rows(parent: ResourceRow, path: ResourcePath) -> list[Json]:
    return rows(parent.body["properties"], path.types[-1])


def _inside(parent: ResourceRow, path: ResourcePath, row: Json) -> ResourceRow:
    return replace(
        parent,
        id=f"{parent.id}/{path.types[-1]}/{row['name']}",
        type=f"{parent.type}/{path.types[-1]}",
        location="",
        body={"properties": copy.deepcopy(row.get("properties", {}))},
    )


def _with_rows(parent: ResourceRow, part: str, rows: list[Json]) -> Json:
    """Return the body of a resource with other rows in one of its parts."""
    return parent.body | {"properties": parent.body["properties"] | {part: rows}}


def _put_inside(fabric: Fabric, parent: ResourceRow, path: ResourcePath, body: Json) -> ResourceRow:
    """Put the row into its parent's list."""
    siblings = [r for r in _rows(parent, path) if str(r["name"]).lower() != path.name.lower()]
    row = {"name": path.name, "properties": copy.deepcopy(body.get("properties", {}))}
    merged = _with_rows(parent, path.types[-1], [*siblings, row])
    parent = fabric.state.change(parent, body=merged, etag=parent.etag + 1)
    return _inside(parent, path, row)


def _check_parent(fabric: Fabric, path: ResourcePath) -> None:
    if (above := path.parent) is None or above.key in fabric.state.resources:
        return
    raise ArmError(
        404,
        "ParentResourceNotFound",
        "Failed to perform 'write' on resource(s) of type "
        f"'{'/'.join(path.types)}', because the parent resource '{above.id}' could not be found.",
    )
