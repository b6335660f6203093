"""Microsoft.ContainerRegistry: registries. Images are not kept."""

from emulator.resources.kinds import Draft, ResourceKind

REGISTRIES = "Microsoft.ContainerRegistry/registries"


def _check(draft: Draft) -> None:
    name = draft.path.name.lower()
    if draft.name_taken:
        message = f"The registry DNS name {name}.azurecr.io is already in use."
        raise draft.refuse("AlreadyInUse", message, 409)
    if draft.sku.get("name") not in ("Basic", "Standard", "Premium"):
        raise draft.refuse(
            "InvalidSku", f"The registry SKU '{draft.sku.get('name')}' is not supported."
        )
    draft.sku["tier"] = draft.sku["name"]
    draft.properties.setdefault("adminUserEnabled", False)
    draft.properties.setdefault("publicNetworkAccess", "Enabled")
    draft.properties["loginServer"] = f"{name}.azurecr.io"


KINDS = (
    ResourceKind(
        type=REGISTRIES,
        oldest="2017-10-01",
        check=_check,
        name=r"[A-Za-z0-9]{5,50}",
        bad_name=("InvalidResourceName", "Registry name {} is not 5 to 50 letters and digits."),
    ),
)
