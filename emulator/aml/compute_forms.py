"""What Azure ML accepts of a compute cluster, and what it makes of it."""

import re
import uuid
from typing import Any

from emulator.aml.assets import COMPUTE, amend, properties, user_error
from emulator.arm.tags import tags_of
from emulator.core.catalog import catalog, region_name
from emulator.core.state import ResourceRow
from emulator.fabric import Fabric

NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{1,22}[A-Za-z0-9]")
DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")
PRIORITIES = ("LowPriority", "Dedicated")
IDLE = "PT120S"  # before a node is taken down, unless the cluster says
MOST_RDMA = 100  # nodes: MicrosoftDocs/azure-ai-docs, machine-learning/how-to-manage-quotas.md


def cluster_body(body: dict[str, Any]) -> dict[str, Any]:
    """Return the body of a cluster, or raise ArmError."""
    outer = body.get("properties")
    if not isinstance(outer, dict) or outer.get("computeType") != "AmlCompute":
        raise user_error(400, "The emulator has computes of the type AmlCompute only.")
    if not isinstance(outer.get("properties") or {}, dict):
        raise user_error(400, "The properties of an AmlCompute must be an object.")
    if not isinstance(body.get("identity") or {}, dict):
        raise user_error(400, "The identity of an AmlCompute must be an object.")
    return body


def new(id_: str, region: str, body: dict[str, Any], now: float) -> ResourceRow:
    """Return a new cluster; in the workspace's region unless it says."""
    name = id_.rpartition("/")[2]
    if not NAME.fullmatch(name):
        raise user_error(
            400,
            f"Invalid compute name '{name}': 3 to 24 letters, digits and hyphens, the first a "
            "letter, the last no hyphen.",
        )
    location = region_name(body.get("location") or region)
    inner = dict(body["properties"].get("properties") or {})
    size = str(inner.get("vmSize") or "")
    if catalog().offer(size, location) is None:
        raise user_error(400, f"The specified VM size {size} is not supported in {location}.")
    inner["vmPriority"] = inner.get("vmPriority") or "Dedicated"
    if inner["vmPriority"] not in PRIORITIES:
        raise user_error(400, f"vmPriority must be one of {', '.join(PRIORITIES)}.")
    scale, idle_seconds = scaled(inner, inner.get("scaleSettings"))
    return ResourceRow(
        id=id_,
        type=COMPUTE,
        location="",
        body={k: body[k] for k in ("sku", "identity") if k in body}
        | {
            "location": location,
            "tags": tags_of(body),
            "properties": body["properties"] | {"properties": inner | {"scaleSettings": scale}},
            "private": {
                "guid": str(uuid.uuid4()),
                "region": location,
                "idle_since": {},
                "idle_seconds": idle_seconds,
                "errors": [],
                "retry_at": 0.0,
                "resized_at": now,
            },
        },
        created_at=now,
        provisioning_state="Creating",
    )


def resize(fabric: Fabric, compute: ResourceRow, body: dict[str, Any]) -> ResourceRow:
    """Change the scale settings and tags of a cluster; the rest is fixed."""
    if compute.provisioning_state == "Deleting":
        raise user_error(409, f"Compute {compute.name} is being deleted.")
    before = properties(compute)["properties"]
    changes = body["properties"].get("properties") or {}
    for member in ("vmSize", "vmPriority"):
        if str(changes.get(member) or before[member]).lower() != str(before[member]).lower():
            raise user_error(400, f"The {member} of a compute cannot be changed.")
    compute = set_scale(fabric, compute, changes.get("scaleSettings") or {})
    tags = {"tags": tags_of(body)} if "tags" in body else {}
    return fabric.state.change(compute, body=compute.body | tags)


def set_scale(fabric: Fabric, compute: ResourceRow, settings: dict[str, Any]) -> ResourceRow:
    """Set its minimum and maximum of nodes, and how soon it scales down."""
    inner = properties(compute)["properties"]
    scale, idle_seconds = scaled(inner, inner["scaleSettings"] | settings)
    changes = {"properties": inner | {"scaleSettings": scale}}
    return amend(fabric, compute, changes, idle_seconds=idle_seconds)


def scaled(inner: dict[str, Any], settings: object) -> tuple[dict[str, Any], float]:
    """Return scale settings in full, and after how many seconds a node is idle; or ArmError."""
    if not isinstance(settings, dict):
        raise user_error(400, "An AmlCompute needs scaleSettings.")
    most, least = settings.get("maxNodeCount"), settings.get("minNodeCount") or 0
    idle = settings.get("nodeIdleTimeBeforeScaleDown") or IDLE
    if not isinstance(most, int) or not isinstance(least, int) or not 0 <= least <= most:
        raise user_error(400, "minNodeCount must be 0 or more, and maxNodeCount not below it.")
    size = catalog().size(inner["vmSize"])
    if size and size.rdma and most > MOST_RDMA:
        raise user_error(400, f"A cluster of an RDMA size can have {MOST_RDMA} nodes at most.")
    seconds = duration(idle)
    names = ("minNodeCount", "maxNodeCount", "nodeIdleTimeBeforeScaleDown")
    return dict(zip(names, (least, most, idle), strict=True)), seconds


def duration(text: object) -> float:
    """Return the seconds of an ISO 8601 duration, or raise ArmError."""
    match = DURATION.fullmatch(str(text))
    if not match or not any(match.groups()):
        raise user_error(400, f"'{text}' is not a duration: write it as PT120S.")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
