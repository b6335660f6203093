"""What Azure does to a job of its own accord, at a caller's wish: `/_emulator/azureml/...`."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.aml import nodes
from emulator.aml.assets import JOB, amend, lookup, of_type, private, properties
from emulator.arm.front_door import fabric_of, read_order
from emulator.compute import evictions
from emulator.core.errors import ArmError, invalid
from emulator.core.state import ResourceRow
from emulator.fabric import Fabric

# The first is the rule; a failure is Azure/MachineLearningNotebooks issue 1242.
ENDINGS = {"restart": "Queued", "fail": "Preempted", "cancel": "Canceled"}


async def preempt(request: Request) -> Response:
    """Evict ``nodes`` of a job's nodes (all) without notice; ``then`` it restarts, or ends."""
    fabric, body = fabric_of(request), await read_order(request, "job", "nodes", "then")
    job, ending = _holder(fabric, body.get("job")), ENDINGS.get(str(body.get("then", "restart")))
    compute = lookup(fabric, private(job)["compute"])
    members = nodes.nodes(fabric, compute) if compute else []
    job_nodes = [n for n in members if n.run == job.name and n.instance.phase == "allocated"]
    count = body.get("nodes") or len(job_nodes)
    if ending is None or not isinstance(count, int) or not 1 <= count <= len(job_nodes):
        raise invalid(f"'then' is one of {', '.join(ENDINGS)}, 'nodes' 1 to {len(job_nodes)}.")
    for node in job_nodes[-count:]:
        evictions.strike(fabric.state, node.instance, fabric.now())
    amend(fabric, job, after_preemption=ending)
    fabric.changed()
    await fabric.step()
    return JSONResponse({"preempted": [node.instance.address for node in job_nodes[-count:]]})


async def silence(request: Request) -> Response:
    """Have Azure not hear of a job for ``seconds``: its processes go on."""
    fabric, body = fabric_of(request), await read_order(request, "job", "seconds")
    job, seconds = _holder(fabric, body.get("job")), body.get("seconds")
    if not isinstance(seconds, int | float) or not seconds > 0:
        raise invalid("'seconds' must be a number above 0.")
    until = fabric.now() + seconds
    amend(fabric, job, {"status": "NotResponding"}, silent_until=until)
    fabric.changed()
    return JSONResponse({"until": until})


def _holder(fabric: Fabric, name: object) -> ResourceRow:
    """Return the running job of that name, or raise ArmError."""
    matches = [job for job in of_type(fabric, JOB) if job.name == name]
    running = [job for job in matches if properties(job)["status"] in ("Running", "NotResponding")]
    if not running:
        raise ArmError(409 if matches else 404, "NotFound", f"No job '{name}' of Azure ML runs.")
    return running[0]
