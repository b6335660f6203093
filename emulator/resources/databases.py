"""Microsoft.DBforPostgreSQL: flexible servers as resources. There is no server behind them."""

from emulator.compute.rules.scale_set_rules import is_weak
from emulator.core.errors import ArmError
from emulator.resources.kinds import Draft, ResourceKind, no_check

SERVERS = "Microsoft.DBforPostgreSQL/flexibleServers"
OLDEST = "2021-06-01"
TIERS = {"Burstable": "Standard_B", "GeneralPurpose": "Standard_D", "MemoryOptimized": "Standard_E"}


def _check_server(draft: Draft) -> None:
    properties, sku = draft.properties, draft.sku
    password = properties.pop("administratorLoginPassword", None)
    if draft.old is None or password is not None:
        _check_password(str(properties.get("administratorLogin")), password)
    begins = TIERS.get(str(sku.get("tier")))
    if begins is None or not str(sku.get("name")).startswith(begins):
        raise draft.refuse(
            "InvalidParameterValue",
            f"The size {sku.get('name')} is not one of the tier {sku.get('tier')}; the tiers are "
            f"{', '.join(TIERS)}.",
        )
    host = f"{draft.path.name}.postgres.database.azure.com"
    properties.update(fullyQualifiedDomainName=host, state="Ready")


def _check_password(login: str, password: object) -> None:
    if is_weak(password, 8, 128) or login.lower() in str(password).lower():
        raise ArmError(
            400,
            "PasswordNotComplex",
            "Password validation failed. The password does not meet policy requirements because "
            "it is not complex enough.",
        )


KINDS = (
    ResourceKind(
        type=SERVERS,
        oldest=OLDEST,
        check=_check_server,
        name=r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]",
    ),
    ResourceKind(type=f"{SERVERS}/databases", oldest=OLDEST, check=no_check),
    ResourceKind(type=f"{SERVERS}/firewallRules", oldest=OLDEST, check=no_check),
    ResourceKind(type=f"{SERVERS}/configurations", oldest=OLDEST, check=no_check),
)
