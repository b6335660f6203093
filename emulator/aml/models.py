"""Models: where the files lie, and a name for them. Nothing is copied."""

import re
from typing import Any

from emulator.aml.assets import lookup, user_error
from emulator.core.state import ResourceRow
from emulator.fabric import Fabric

NOUN, FIXED = "Model", "modelUri"
# The client reads `flavors` of every answer (azure-ai-ml 1.35.2, Model._from_rest_object).
DEFAULTS: dict[str, Any] = {"modelType": "custom_model", "flavors": {}}
TYPES = ("custom_model", "mlflow_model", "triton_model")
# As azure-ai-ml sends them: jobs and datastores of the workspace, and blobs. Azurite has http here.
URI = re.compile(
    r"(?:https|http(?=://127\.0\.0\.1:))://.+"
    r"|azureml://(?:.+/)?(?:datastores/.+|jobs/(?P<job>[^/]+)/outputs/.+)"
)


def check(fabric: Fabric, workspace: ResourceRow, wanted: dict[str, Any]) -> None:
    """Raise ArmError unless this is a model, of a job that there is."""
    found = URI.fullmatch(str(wanted.get("modelUri")))
    if not found:
        raise user_error(
            400, "modelUri must be an https address, or a path of a job or a datastore."
        )
    if wanted.get("modelType", TYPES[0]) not in TYPES:
        raise user_error(400, f"modelType must be one of {', '.join(TYPES)}.")
    job = found["job"]
    if job and lookup(fabric, f"{workspace.id}/jobs/{job}") is None:
        raise user_error(404, f"Could not find job {job}.")
