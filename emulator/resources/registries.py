"""Microsoft.ContainerRegistry: registries. Images are not kept."""

from emulator.errors import ArmError
from emulator.resources.kinds import Draft, Kind

REGISTRIES = "Microsoft.ContainerRegistry/registries"


def _check(draft: Draft) -> None:
    name = draft.path.name.lower()
    for other in draft.fabric.state.resources.values():
        if other.type == REGISTRIES and other.name.lower() == name and other.key != draft.path.key:
            raise draft.refuse(
                "AlreadyInUse", f"The registry DNS name {name}.azurecr.io is already in use.", 409
            )
    if draft.sku.get("name") not in ("Basic", "Standard", "Premium"):
        raise draft.refuse(
            "InvalidSku", f"The registry SKU '{draft.sku.get('name')}' is not supported."
        )
    draft.sku["tier"] = draft.sku["name"]
    draft.properties.setdefault("adminUserEnabled", False)
    draft.properties.setdefault("publicNetworkAccess", "Enabled")
    draft.properties["loginServer"] = f"{name}.azurecr.io"


def _bad_name(name: str) -> ArmError:
    return ArmError(
        400,
        "InvalidResourceName",
        f"Registry name {name} is invalid: it may have 5 to 50 letters and digits, nothing else.",
    )


KINDS = (
    Kind(
        type=REGISTRIES,
        oldest="2017-10-01",
        check=_check,
        name=r"[A-Za-z0-9]{5,50}",
        name_refusal=_bad_name,
    ),
)
