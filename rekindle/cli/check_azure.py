"""Whether the subscription that the service is configured for has what it needs.

It reads the service's own settings from the environment, and asks ARM what only ARM knows. What the
settings must be like, and whether database and storage answer, is in check_settings.py.
"""

import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import httpx

from rekindle.cli import check_settings
from rekindle.cli.check import Check, doubt, missing, ok, skipped

_ACTIONS = {
    "Virtual Machine Contributor": (
        "Microsoft.Compute/virtualMachineScaleSets/read",
        "Microsoft.Compute/virtualMachineScaleSets/write",
        "Microsoft.Compute/virtualMachineScaleSets/delete",
    ),
    "Network Contributor": ("Microsoft.Network/virtualNetworks/subnets/join/action",),
}
_OPERATOR = "Managed Identity Operator"
_ASSIGN = "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action"
_PERMISSIONS = "providers/Microsoft.Authorization/permissions"
_SPOT_QUOTA = "lowPriorityCores"
_TIMEOUT = 30.0


@dataclass(frozen=True)
class Azure:
    """ARM of one subscription, with a token."""

    http: httpx.Client
    subscription: str
    group: str

    def get(self, path: str, version: str) -> dict[str, Any]:
        """What ARM answers; raises httpx.HTTPError."""
        answer = self.http.get(path, params={"api-version": version}).raise_for_status()
        parsed: dict[str, Any] = answer.json()
        return parsed


def checks(environment: Mapping[str, str]) -> Iterator[Check]:
    """Line by line; of Azure nothing where the environment names no subscription."""
    yield from check_settings.checks(environment)
    subscription = environment.get("REKINDLE_AZURE_SUBSCRIPTION_ID", "")
    if not subscription:
        why = "REKINDLE_AZURE_SUBSCRIPTION_ID is not set: this is not where the service runs"
        yield skipped("Azure", why)
        return
    yield _image(environment.get("REKINDLE_TRAINER_IMAGE", ""))
    try:
        token = _token(environment)
    except Exception as error:  # noqa: BLE001 - azure.identity raises more than it documents
        yield missing("Azure sign-in", _first_line(error), "Run az login, or mend the credentials.")
        return
    yield ok("Azure sign-in", "a token was given")
    headers = {"authorization": f"Bearer {token}"}
    trust = ssl.create_default_context(cafile=environment.get("REKINDLE_AZURE_CA") or None)
    base = f"{_endpoint(environment)}/subscriptions/{subscription}"
    with httpx.Client(base_url=base, headers=headers, verify=trust, timeout=_TIMEOUT) as http:
        azure = Azure(http, subscription, environment.get("REKINDLE_AZURE_RESOURCE_GROUP", ""))
        yield from _group(azure)
        yield from _identity(azure, environment.get("REKINDLE_AZURE_IDENTITY_ID", ""))
        yield from _quotas(azure, environment.get("REKINDLE_OFFERINGS", ""))


def _image(image: str) -> Check:
    host = image.partition("/")[0] if "/" in image else ""
    if "." not in host and ":" not in host:
        remedy = "Push it to a registry, and name it in full in REKINDLE_TRAINER_IMAGE."
        return missing("trainer image", f"{image or 'none'} names no registry", remedy)
    name, _, reference = image.removeprefix(f"{host}/").partition("@")
    name, _, tag = name.partition(":")
    url = f"https://{host}/v2/{name}/manifests/{reference or tag or 'latest'}"
    try:
        answer = httpx.head(url, timeout=_TIMEOUT, follow_redirects=True)
    except httpx.HTTPError as error:
        return missing("trainer image", f"{host}: {_first_line(error)}", "Check the registry.")
    if answer.status_code in (401, 403):
        registry = host.partition(".")[0]
        remedy = f"See for yourself: az acr repository show -n {registry} --image {name}:{tag}"
        return doubt("trainer image", f"{host} shows {name} only to those it knows", remedy)
    if answer.is_error:
        return missing("trainer image", f"{image}: {answer.status_code}", "Push it: docs/images.md")
    return ok("trainer image", image)


def _group(azure: Azure) -> Iterator[Check]:
    path = f"/resourceGroups/{azure.group}"
    try:
        azure.get(path, "2021-04-01")
    except httpx.HTTPError as error:
        remedy = f"az group create -n {azure.group or 'NAME'} -l REGION, or mend its name."
        yield missing("resource group", _said(error), remedy)
        return
    yield ok("resource group", azure.group)
    try:
        listed = azure.get(f"{path}/{_PERMISSIONS}", "2022-04-01")
    except httpx.HTTPError as error:
        yield doubt("roles", f"cannot be read: {_said(error)}", "Look: az role assignment list")
        return
    yield from _roles(listed["value"])


def _roles(granted: list[dict[str, Any]]) -> Iterator[Check]:
    for role, actions in _ACTIONS.items():
        yield _role(role, actions, granted, "the resource group")


def _identity(azure: Azure, identity: str) -> Iterator[Check]:
    """Who makes a machine must be let give it its identity; asked where that is granted."""
    name = f"role {_OPERATOR}"
    if not identity:
        yield skipped(name, "REKINDLE_AZURE_IDENTITY_ID is not set: nodes have no identity")
        return
    whole = azure.http.base_url.copy_with(path=f"{identity}/{_PERMISSIONS}")
    try:
        granted = azure.get(str(whole), "2022-04-01")["value"]
    except httpx.HTTPError as error:
        yield doubt(name, f"cannot be read: {_said(error)}", f"Does {identity} exist?")
        return
    yield _role(_OPERATOR, (_ASSIGN,), granted, "the nodes' identity")


def _role(role: str, actions: tuple[str, ...], granted: list[dict[str, Any]], where: str) -> Check:
    absent = [action for action in actions if not _may(granted, action)]
    if not absent:
        return ok(f"role {role}", "granted")
    remedy = f"az role assignment create --role '{role}' on {where}."
    return missing(f"role {role}", f"may not {', '.join(absent)}", remedy)


def _may(granted: list[dict[str, Any]], action: str) -> bool:
    """As ARM adds roles up: what one grants, less what the same one takes away."""

    def within(patterns: list[str]) -> bool:
        return any(fnmatchcase(action.lower(), pattern.lower()) for pattern in patterns)

    return any(
        within(g.get("actions", [])) and not within(g.get("notActions", [])) for g in granted
    )


def _quotas(azure: Azure, offerings: str) -> Iterator[Check]:
    for offering in filter(None, (text.strip() for text in offerings.split(","))):
        size, _, place = offering.partition("@")
        region, _, capacity = place.partition(":")
        name = f"quota of {offering}"
        if capacity == "on_demand":
            yield skipped(name, "on demand: look with az vm list-usage, by the size's family")
            continue
        path = f"/providers/Microsoft.Compute/locations/{region}/usages"
        try:
            usages = azure.get(path, "2024-07-01")["value"]
        except httpx.HTTPError as error:
            yield doubt(name, f"cannot be read: {_said(error)}", "The role Reader is enough.")
            continue
        yield _quota(name, usages, size)


def _quota(name: str, usages: list[dict[str, Any]], size: str) -> Check:
    spot = next((u for u in usages if u["name"]["value"] == _SPOT_QUOTA), None)
    if spot is None:
        return doubt(name, f"ARM lists no {_SPOT_QUOTA}", "Look: az vm list-usage")
    free = spot["limit"] - spot["currentValue"]
    cores = re.search(r"[A-Za-z](\d+)", size.partition("_")[2])
    needed = int(cores[1]) if cores else 1
    found = f"{free} of {spot['limit']} Spot cores free, {needed} for each machine"
    if free >= needed:
        return ok(name, found)
    return missing(name, found, "Ask for more Spot quota in the portal: Usage + quotas.")


def _token(environment: Mapping[str, str]) -> str:
    """As the service signs in."""
    from azure.identity import ClientSecretCredential, DefaultAzureCredential

    endpoint, ca = _endpoint(environment), environment.get("REKINDLE_AZURE_CA")
    private: dict[str, Any] = (
        {"authority": endpoint, "disable_instance_discovery": True, "connection_verify": ca}
        if ca
        else {}
    )
    secret = environment.get("REKINDLE_AZURE_CLIENT_SECRET", "")
    credential: Any = (
        ClientSecretCredential(
            environment.get("REKINDLE_AZURE_TENANT_ID", ""),
            environment.get("REKINDLE_AZURE_CLIENT_ID", ""),
            secret,
            **private,
        )
        if secret
        else DefaultAzureCredential()
    )
    return str(credential.get_token(f"{endpoint}/.default").token)


def _endpoint(environment: Mapping[str, str]) -> str:
    return environment.get("REKINDLE_AZURE_ENDPOINT") or "https://management.azure.com"


def _said(error: httpx.HTTPError) -> str:
    """Azure's own words where it had any."""
    if isinstance(error, httpx.HTTPStatusError):
        try:
            return str(error.response.json()["error"]["message"]).splitlines()[0]
        except (ValueError, KeyError, TypeError, IndexError):
            return f"ARM answered {error.response.status_code}"
    return _first_line(error)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
