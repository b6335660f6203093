"""The form of a scale set's JSON: which members are objects, lists, texts, numbers, choices.

Members that are not named here pass unseen: the emulator keeps them and shows them again.
"""

from typing import Any

from emulator.core.errors import invalid, missing

TEXT, WHOLE, NUMBER, SWITCH, TEXTS = "text", "whole", "number", "switch", "texts"
RANK = "rank"
TYPES: dict[str, tuple[str, tuple[type, ...]]] = {
    TEXT: ("System.String", (str,)),
    WHOLE: ("System.Int32", (int,)),
    RANK: ("System.Int32", (int,)),
    NUMBER: ("System.Double", (int, float)),
    SWITCH: ("System.Boolean", (bool,)),
}
LARGEST = {WHOLE: 2**31 - 1, NUMBER: 1e300}

_DISK = {
    "caching": ("None", "ReadOnly", "ReadWrite"),
    "diffDiskSettings": {
        "option": ("Local",),
        "placement": ("CacheDisk", "ResourceDisk", "NvmeDisk"),
    },
    "managedDisk": {"storageAccountType": TEXT, "diskEncryptionSet": {"id": TEXT}},
    "diskSizeGB": WHOLE,
}
_ADDRESS = {"name": TEXT, "properties": {"subnet": {"id": TEXT}, "primary": SWITCH}}
_CARD = {
    "name": TEXT,
    "properties": {
        "primary": SWITCH,
        "enableAcceleratedNetworking": SWITCH,
        "networkSecurityGroup": {"id": TEXT},
        "ipConfigurations": [_ADDRESS],
    },
}
_OS = {
    "computerNamePrefix": TEXT,
    "adminUsername": TEXT,
    "adminPassword": TEXT,
    "customData": TEXT,
    "linuxConfiguration": {"ssh": {"publicKeys": [{"path": TEXT, "keyData": TEXT}]}},
}
_PROFILE = {
    "priority": ("Regular", "Low", "Spot"),
    "evictionPolicy": ("Deallocate", "Delete"),
    "billingProfile": {"maxPrice": NUMBER},
    "userData": TEXT,
    "osProfile": _OS,
    "storageProfile": {"osDisk": _DISK, "imageReference": {"id": TEXT}, "dataDisks": [{}]},
    "networkProfile": {"networkApiVersion": TEXT, "networkInterfaceConfigurations": [_CARD]},
    "scheduledEventsProfile": {
        "terminateNotificationProfile": {"enable": SWITCH, "notBeforeTimeout": TEXT}
    },
    "capacityReservation": {"capacityReservationGroup": {"id": TEXT}},
    "securityProfile": {
        "securityType": ("Standard", "TrustedLaunch", "ConfidentialVM"),
        "encryptionAtHost": SWITCH,
        "uefiSettings": {"secureBootEnabled": SWITCH, "vTpmEnabled": SWITCH},
    },
    "diagnosticsProfile": {"bootDiagnostics": {"enabled": SWITCH, "storageUri": TEXT}},
}
_PROPERTIES = {
    "orchestrationMode": ("Uniform", "Flexible"),
    "singlePlacementGroup": SWITCH,
    "overprovision": SWITCH,
    "platformFaultDomainCount": WHOLE,
    "upgradePolicy": {"mode": ("Automatic", "Manual", "Rolling")},
    "scaleInPolicy": {"rules": [("Default", "OldestVM", "NewestVM")], "forceDeletion": SWITCH},
    "spotRestorePolicy": {"enabled": SWITCH, "restoreTimeout": TEXT},
    "priorityMixPolicy": {
        "baseRegularPriorityCount": WHOLE,
        "regularPriorityPercentageAboveBase": WHOLE,
    },
    "skuProfile": {"allocationStrategy": TEXT, "vmSizes": [{"name": TEXT, "rank": RANK}]},
    "proximityPlacementGroup": {"id": TEXT},
    "virtualMachineProfile": _PROFILE,
}
SCALE_SET: dict[str, Any] = {
    "location": TEXT,
    "tags": TEXTS,
    "zones": [TEXT],
    "sku": {"name": TEXT, "tier": TEXT, "capacity": WHOLE},
    "identity": {
        "type": ("SystemAssigned", "UserAssigned", "SystemAssigned, UserAssigned", "None"),
        "userAssignedIdentities": {},
    },
    "plan": {},
    "properties": _PROPERTIES,
}
ORDER: dict[str, Any] = {"instanceIds": [TEXT]}


def formed(value: Any, form: Any, path: str = "") -> Any:  # noqa: ANN401 - JSON, as it came
    """Return the value with choices in Azure's spelling, or raise ArmError for a wrong member."""
    if value is None:
        return None
    if isinstance(form, tuple):
        return _choice(value, form, path)
    if isinstance(form, list):
        return [_not_null(formed(v, form[0], f"{path}[{n}]"), f"{path}[{n}]")
                for n, v in enumerate(_typed(value, list, path))]  # fmt: skip
    if form == TEXTS:
        return {k: formed(v, TEXT, f"{path}.{k}") for k, v in _typed(value, dict, path).items()}
    if isinstance(form, dict):
        return _object(_typed(value, dict, path), form, path)
    return _plain(value, form, path)


def _object(value: dict[str, Any], form: dict[str, Any], path: str) -> dict[str, Any]:
    inside = {
        k: formed(v, form[k], f"{path}.{k}".lstrip(".")) for k, v in value.items() if k in form
    }
    return {**value, **inside}


def _choice(value: Any, choices: tuple[str, ...], path: str) -> str:  # noqa: ANN401 - as it came
    text = _plain(value, TEXT, path).lower().replace(", ", ",")
    for choice in choices:
        if choice.lower().replace(", ", ",") == text:
            return choice
    name = path.rpartition(".")[2]
    raise invalid(
        f"The value '{value}' of parameter '{name}' is not allowed. Allowed values are: "
        f"{', '.join(choices)}.",
        target=name,
    )


def _plain(value: Any, form: str, path: str) -> Any:  # noqa: ANN401 - as it came
    if form == SWITCH and value in ("true", "True", "false", "False"):
        return value.lower() == "true"  # as Azure's own deserializer reads them
    if form == RANK and isinstance(value, str) and value.isdecimal():
        return int(value)  # as az 2.91 sends it
    name, kinds = TYPES[form]
    fits = isinstance(value, kinds) and (form == SWITCH or not isinstance(value, bool))
    if not fits or (form in LARGEST and not abs(value) <= LARGEST[form]):
        raise _wrong_type(value, name, path)
    return value


def _typed(value: Any, kind: type, path: str) -> Any:  # noqa: ANN401 - as it came
    if not isinstance(value, kind):
        raise _wrong_type(value, "a list" if kind is list else "an object", path)
    return value


def _not_null(value: Any, path: str) -> Any:  # noqa: ANN401 - as it came
    if value is None:
        raise missing(path)
    return value


def _wrong_type(value: Any, name: str, path: str) -> Exception:  # noqa: ANN401 - as it came
    excerpt = str(value)[:100]
    message = f"Error converting value \"{excerpt}\" to type '{name}'. Path '{path}'."
    return invalid(message, "BadRequest", target=path)
