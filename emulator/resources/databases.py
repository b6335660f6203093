"""Microsoft.DBforPostgreSQL: flexible servers as resources. There is no server behind them."""

import ipaddress
import re

from emulator.errors import ArmError
from emulator.resources.kinds import Draft, Json, Kind, section

SERVERS = "Microsoft.DBforPostgreSQL/flexibleServers"
OLDEST = "2021-06-01"
VERSIONS = ("11", "12", "13", "14", "15", "16", "17", "18")
TIERS = {"Burstable": "Standard_B", "GeneralPurpose": "Standard_D", "MemoryOptimized": "Standard_E"}
RESERVED = {
    *("azure_superuser", "azure_pg_admin", "admin", "administrator", "root", "guest", "public"),
}
STORAGE_GIB = (32, 64, 128, 256, 512, 1024, 2048, 4095, 4096, 8192, 16384, 32767)


def _check_server(draft: Draft) -> None:
    properties = draft.properties
    password = properties.pop("administratorLoginPassword", None)
    if draft.old is None:
        _check_login(properties.get("administratorLogin"), password)
    elif password is not None:
        _check_password(str(properties.get("administratorLogin")), password)
    if properties.setdefault("version", "17") not in VERSIONS:
        raise _bad("version", properties["version"], VERSIONS)
    _check_sku(draft.sku)
    storage = properties.setdefault("storage", {})
    if section(properties, "storage").setdefault("storageSizeGB", 32) not in STORAGE_GIB:
        raise _bad("storageSizeGB", storage["storageSizeGB"], STORAGE_GIB)
    before = draft.old.body["properties"]["storage"]["storageSizeGB"] if draft.old else 0
    if storage["storageSizeGB"] < before:
        raise draft.refuse(
            "InvalidParameterValue", "The storage of a server can grow, but not shrink."
        )
    properties.setdefault("backup", {"backupRetentionDays": 7, "geoRedundantBackup": "Disabled"})
    properties.setdefault("highAvailability", {"mode": "Disabled"})
    properties.setdefault("network", {"publicNetworkAccess": "Enabled"})
    host = f"{draft.path.name}.postgres.database.azure.com"
    properties.update(fullyQualifiedDomainName=host, state="Ready")


def _check_login(login: object, password: object) -> None:
    name = str(login or "")
    if not re.fullmatch(r"[A-Za-z]\w{0,62}", name) or name.lower() in RESERVED:
        raise ArmError(
            400, "InvalidParameterValue", f"The administrator login '{name}' is not allowed."
        )
    if name.lower().startswith("pg_"):
        raise ArmError(
            400, "InvalidParameterValue", "An administrator login cannot begin with pg_."
        )
    _check_password(name, password)


def _check_password(login: str, password: object) -> None:
    text = password if isinstance(password, str) else ""
    kinds = (r"[a-z]", r"[A-Z]", r"[0-9]", r"[^A-Za-z0-9]")
    varied = sum(bool(re.search(kind, text)) for kind in kinds)
    if not 8 <= len(text) <= 128 or varied < 3 or login.lower() in text.lower():
        raise ArmError(
            400,
            "PasswordNotComplex",
            "Password validation failed. The password does not meet policy requirements because "
            "it is not complex enough.",
        )


def _check_sku(sku: Json) -> None:
    begins = TIERS.get(str(sku.get("tier")))
    if begins is None:
        raise _bad("sku.tier", sku.get("tier"), tuple(TIERS))
    if not str(sku.get("name")).startswith(begins):
        raise ArmError(
            400,
            "InvalidParameterValue",
            f"The sku {sku.get('name')} is not one of the tier {sku['tier']}.",
        )


def _bad(name: str, value: object, choices: tuple[object, ...]) -> ArmError:
    return ArmError(
        400,
        "ParameterOutOfRange",
        f"The value {value} is invalid for the parameter {name}. Possible values are: "
        f"{', '.join(str(choice) for choice in choices)}.",
    )


def _check_database(draft: Draft) -> None:
    draft.properties.setdefault("charset", "UTF8")
    draft.properties.setdefault("collation", "en_US.utf8")


def _check_firewall(draft: Draft) -> None:
    ends = []
    for member in ("startIpAddress", "endIpAddress"):
        try:
            ends.append(ipaddress.IPv4Address(str(draft.properties.get(member))))
        except ValueError:
            raise _bad(member, draft.properties.get(member), ("an IPv4 address",)) from None
    if ends[0] > ends[1]:
        raise draft.refuse("InvalidParameterValue", "The firewall rule ends before it starts.")


def _check_setting(draft: Draft) -> None:
    if "value" not in draft.properties:
        raise draft.refuse("InvalidParameterValue", "A configuration needs a value.")
    draft.properties.setdefault("source", "user-override")


def _bad_name(name: str) -> ArmError:
    return ArmError(
        400,
        "InvalidServerName",
        f"The server name {name} is invalid. It may have 3 to 63 lower-case letters, digits and "
        "hyphens, and must not begin or end with a hyphen.",
    )


KINDS = (
    Kind(
        type=SERVERS,
        oldest=OLDEST,
        check=_check_server,
        name=r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]",
        name_refusal=_bad_name,
    ),
    Kind(type=f"{SERVERS}/databases", oldest=OLDEST, check=_check_database),
    Kind(type=f"{SERVERS}/firewallRules", oldest=OLDEST, check=_check_firewall),
    Kind(type=f"{SERVERS}/configurations", oldest=OLDEST, check=_check_setting),
)
