"""Resources in the state: looked up, put, deleted, shown. What requests and deployments share."""

import copy
from typing import Any

from emulator.errors import ArmError, resource_not_found
from emulator.fabric import Fabric
from emulator.resources.kinds import Draft, Json, Kind, check, rows
from emulator.resources.locations import check_place
from emulator.resources.resource_ids import ResourcePath, parse
from emulator.state import Resource
from emulator.tags import tags_of

MODEL = ("location", "tags", "sku", "kind", "identity", "zones", "plan", "properties")


def lookup(fabric: Fabric, path: ResourcePath, kind: Kind) -> Resource | None:
    """The resource that a path names; those inside a parent are made up from it."""
    if found := fabric.state.resources.get(path.key):
        return found
    above = path.parent
    parent = fabric.state.resources.get(above.key) if above else None
    if parent is None:
        return None
    if kind.always is not None:
        return _made(path, kind, copy.deepcopy(kind.always), parent)
    for row in rows(parent.body["properties"], kind.inside) if kind.inside else []:
        if str(row.get("name")).lower() == path.name.lower():
            return _made(path, kind, {"properties": row["properties"]}, parent)
    return None


def listed(fabric: Fabric, path: ResourcePath, kind: Kind) -> list[Resource]:
    """What a list path names."""
    above = path.parent
    parent = fabric.state.resources.get(above.key) if above and kind.inside else None
    if parent:
        names = [str(row["name"]) for row in rows(parent.body["properties"], kind.inside)]
        inner = [ResourcePath(*_steps(path), (*path.names, name)) for name in names]
        return [found for each in inner if (found := lookup(fabric, each, kind))]
    inside = path.key + "/"
    same = (r for r in fabric.state.resources.values() if r.key.startswith(inside))
    return [r for r in same if r.type.lower() == kind.type.lower()]


def put(fabric: Fabric, path: ResourcePath, kind: Kind, body: Json) -> Resource:
    """Create or replace; the caller writes the state down. ArmError if Azure would refuse."""
    parent = _parent(fabric, path)
    kind.check_name(path.name)
    if kind.inside:
        assert parent
        return _put_inside(fabric, path, kind, parent, body)
    old = fabric.state.resources.get(path.key)
    draft = Draft(fabric, path, {k: copy.deepcopy(body[k]) for k in MODEL if k in body}, old)
    if "tags" in draft.body:
        draft.body["tags"] = tags_of(draft.body)
    if kind.located:
        check_place(draft, kind.type)
    check(kind, draft)
    return keep(fabric, draft, kind)


def keep(fabric: Fabric, draft: Draft, kind: Kind) -> Resource:
    """Put a draft that was checked into the state."""
    draft.properties["provisioningState"] = "Succeeded"
    old = draft.old
    resource = Resource(
        id=old.id if old else draft.path.id,
        type=kind.type,
        location=str(draft.body.get("location", "")),
        body=draft.body,
        created_at=old.created_at if old else fabric.now(),
        etag=old.etag + 1 if old else 1,
    )
    fabric.state.resources[resource.key] = resource
    return resource


def delete(fabric: Fabric, resource: Resource, kind: Kind) -> None:
    """Delete one with all its parts, or raise ArmError while something needs it."""
    if kind.inside:
        _delete_inside(fabric, resource, kind)
        return
    kind.forbid_delete(fabric, resource)
    inside = resource.key + "/"
    for key in [k for k in fabric.state.resources if k == resource.key or k.startswith(inside)]:
        del fabric.state.resources[key]


def shown(resource: Resource) -> dict[str, Any]:
    """A resource as ARM answers it."""
    path = parse(resource.id)
    body = {
        "id": resource.id,
        "name": resource.name,
        "type": resource.type,
        "etag": f'"{resource.etag}"',
        **copy.deepcopy(resource.body),
    }
    for name, row in _lists(body["properties"]) if path else []:
        row.setdefault("id", f"{resource.id}/{name}/{row.get('name')}")
        row.setdefault("type", f"{resource.type}/{name}")
        row.setdefault("etag", body["etag"])
        if isinstance(row.get("properties"), dict):
            row["properties"].setdefault("provisioningState", "Succeeded")
    return body


def not_found(path: ResourcePath) -> ArmError:
    """There is no such resource."""
    return resource_not_found(f"{path.type}/{path.full_name}", path.group)


def _lists(properties: Json) -> list[tuple[str, Json]]:
    """The parts of networks and security groups that are resources themselves."""
    names = ("subnets", "securityRules", "defaultSecurityRules", "inboundNatRules")
    return [(name, row) for name in names for row in rows(properties, name)]


def _steps(path: ResourcePath) -> tuple[str, str, str, tuple[str, ...]]:
    return path.subscription, path.group, path.namespace, path.types


def _made(path: ResourcePath, kind: Kind, body: Json, parent: Resource) -> Resource:
    body["properties"] = dict(body["properties"])
    if kind.inside:
        body["properties"]["provisioningState"] = "Succeeded"
    return Resource(
        id=f"{parent.id}/{path.types[-1]}/{path.name}",
        type=kind.type,
        location="",
        body=body,
        created_at=parent.created_at,
        etag=parent.etag,
    )


def _parent(fabric: Fabric, path: ResourcePath) -> Resource | None:
    """The parent, which must exist; one that always exists stands for its own parent."""
    above = path.parent
    if above is None:
        return None
    if found := fabric.state.resources.get(above.key):
        return found
    if above.types[-1].lower() == "blobservices" and above.name == "default":
        return _parent(fabric, above)
    raise ArmError(
        404,
        "ParentResourceNotFound",
        "Failed to perform 'write' on resource(s) of type "
        f"'{'/'.join(path.types)}', because the parent resource '{above.id}' could not be found.",
    )


def _put_inside(
    fabric: Fabric, path: ResourcePath, kind: Kind, parent: Resource, body: Json
) -> Resource:
    properties = copy.deepcopy(body.get("properties") or {})
    fresh = {"name": path.name, "properties": properties}
    draft = _parent_draft(fabric, path, parent)
    others = rows(draft.properties, kind.inside)
    same = [n for n, row in enumerate(others) if str(row["name"]).lower() == path.name.lower()]
    if same:
        others[same[0]] = fresh
    else:
        others.append(fresh)
    draft.properties[kind.inside] = others
    check(kind, draft)
    _keep_parent(fabric, draft, parent)
    found = lookup(fabric, path, kind)
    assert found
    return found


def _delete_inside(fabric: Fabric, resource: Resource, kind: Kind) -> None:
    path = parse(resource.id)
    assert path
    assert path.parent
    parent = fabric.state.resources[path.parent.key]
    draft = _parent_draft(fabric, path, parent)
    name = path.name.lower()
    rest = [r for r in rows(draft.properties, kind.inside) if str(r["name"]).lower() != name]
    draft.properties[kind.inside] = rest
    check(kind, draft)
    _keep_parent(fabric, draft, parent)


def _parent_draft(fabric: Fabric, path: ResourcePath, parent: Resource) -> Draft:
    assert path.parent
    return Draft(fabric, path.parent, copy.deepcopy(parent.body), parent)


def _keep_parent(fabric: Fabric, draft: Draft, parent: Resource) -> None:
    draft.properties["provisioningState"] = "Succeeded"
    parent.body = draft.body
    parent.etag += 1
