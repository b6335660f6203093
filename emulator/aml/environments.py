"""Environments: which image a job's command runs in."""

from typing import Any

from emulator.aml.assets import ENVIRONMENT, lookup, properties, user_error
from emulator.core.state import ResourceRow
from emulator.fabric import Fabric

NOUN, FIXED = "Environment", "image"
DEFAULTS: dict[str, Any] = {"environmentType": "UserCreated", "osType": "Linux"}
CURATED = "mcr.microsoft.com/azureml/curated"  # the images behind the registry "azureml"


def check(_fabric: Fabric, _workspace: ResourceRow, wanted: dict[str, Any]) -> None:
    """Raise ArmError unless this is an image."""
    if not (wanted.get("image") or wanted.get("build")):
        raise user_error(400, "An environment needs an image or a build context.")
    if wanted.get("build") or wanted.get("condaFile"):
        raise user_error(400, "The emulator builds no images: give the environment an image only.")


def image_of(fabric: Fabric, workspace: str, id_: str) -> str:
    """Return the image of an environment, also of Azure's own, or raise ArmError."""
    parts = id_.removeprefix("azureml://").strip("/").split("/")
    if parts[:3] == ["registries", "azureml", "environments"] and len(parts) == 6:
        return f"{CURATED}/{parts[3]}:{parts[-1]}"
    found = lookup(fabric, id_.removeprefix("azureml:"))
    if found is None or found.type != ENVIRONMENT or not found.key.startswith(workspace):
        raise user_error(400, f"Environment {':'.join(parts[-3::2])} is not found.")
    return str(properties(found)["image"])
