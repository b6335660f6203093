"""Check network access to subnet, storage account, public address and image; and clocks."""

import ipaddress
import re
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import httpx

from rekindle.cli.diagnostics.arm_client import TIMEOUT_SECONDS, ArmClient, first_line
from rekindle.cli.diagnostics.check import (
    CheckResult,
    doubtful_check,
    failed_check,
    passed_check,
    skipped_check,
)

_RESERVED = 5  # addresses of a subnet that Azure keeps: Microsoft's FAQ on virtual networks
_RDMA = ipaddress.ip_network("172.16.0.0/16")  # ND sizes' own; Microsoft's page on InfiniBand
_SKEW_SECONDS = 60.0  # far below the 15 minutes that signed addresses allow for
_RECORD = "Run: az network dns record-set a add-record -g GROUP -z ZONE -n NAME -a ADDRESS"
_STORAGE = "/providers/Microsoft.Storage/storageAccounts"


def check_subnet(azure: ArmClient) -> Iterator[CheckResult]:
    """Check that the nodes' subnet exists, has free addresses, and is not delegated."""
    for subnet_id in azure.in_regions(azure.setting("AZURE_SUBNET_ID")):
        yield _check_subnet_properties(
            azure.get_resource(subnet_id, "2024-05-01")["properties"], subnet_id
        )


def _check_subnet_properties(properties: dict[str, Any], subnet_id: str) -> CheckResult:
    name = "subnet"
    change = f"az network vnet subnet update --ids {subnet_id}"
    if delegated := [d["properties"]["serviceName"] for d in properties.get("delegations") or []]:
        finding = f"is delegated to {', '.join(delegated)}, so it accepts no machines"
        return failed_check(name, finding, f"Run: {change} --remove delegations")
    prefixes = properties.get("addressPrefixes") or [properties["addressPrefix"]]
    networks = [ipaddress.ip_network(prefix) for prefix in prefixes]
    if any(n.version == 4 and n.overlaps(_RDMA) for n in networks):
        finding = f"{', '.join(prefixes)} overlaps {_RDMA}, which RDMA uses on ND sizes"
        return doubtful_check(name, finding, f"Run: {change} --address-prefixes PREFIX")
    used = len(properties.get("ipConfigurations") or [])
    free = sum(n.num_addresses - _RESERVED for n in networks) - used
    if free < 1:
        return failed_check(name, "has no free address", f"Run: {change} --address-prefixes PREFIX")
    if properties.get("defaultOutboundAccess") is False and not properties.get("natGateway"):
        finding = "has no outbound access: neither a NAT gateway nor default outbound access"
        return doubtful_check(name, finding, f"Run: {change} --nat-gateway NAME")
    return passed_check(name, f"{free} free addresses")


def check_storage_firewall(azure: ArmClient) -> Iterator[CheckResult]:
    """Check that the storage account's firewall admits the nodes' subnet."""
    name = "storage firewall"
    match = re.search(r"AccountName=([^;]+)|//([^./]+)\.blob\.", azure.setting("STORAGE"))
    account = (match[1] or match[2]) if match else ""
    accounts = azure.get(_STORAGE, "2024-01-01")["value"] if account else []
    matching = [a for a in accounts if a["name"].lower() == account.lower()]
    if not matching:
        yield skipped_check(name, "the account of REKINDLE_STORAGE is not in this subscription")
        return
    properties = matching[0]["properties"]
    rules = properties.get("networkAcls") or {}
    if properties.get("publicNetworkAccess") == "Disabled":
        finding = (
            "public network access is disabled; nodes need a private endpoint in their network"
        )
        run = f"Run: az storage account update -n {account} --public-network-access Enabled"
        yield doubtful_check(name, finding, run)
        return
    add = "Run: az storage account network-rule add"
    allowed = {str(r["id"]).lower() for r in rules.get("virtualNetworkRules") or []}
    for subnet_id in azure.in_regions(azure.setting("AZURE_SUBNET_ID")):
        if rules.get("defaultAction") == "Deny" and subnet_id.lower() not in allowed:
            run = f"{add} --account-name {account} --subnet {subnet_id}"
            yield failed_check(
                name, f"blocks the nodes' subnet {subnet_id.rpartition('/')[2]}", run
            )
        else:
            yield passed_check(name, f"admits the nodes' subnet {subnet_id.rpartition('/')[2]}")


def check_clock(azure: ArmClient) -> Iterator[CheckResult]:
    """Compare this machine's clock with ARM's `Date`."""
    answer = azure.http.get("", params={"api-version": "2021-04-01"})
    yield check_skew(answer.headers.get("date", ""), datetime.now(UTC))


def check_skew(date: str, now: datetime) -> CheckResult:
    """Check the difference between a `Date` header and a time."""
    try:
        seconds = abs((now - parsedate_to_datetime(date)).total_seconds())
    except ValueError:
        return skipped_check("clock of Azure", "ARM sent no `Date` header")
    if seconds <= _SKEW_SECONDS:
        return passed_check("clock of Azure", "the same as this machine's")
    finding = (
        f"{seconds:.0f} s apart from this machine's; at 15 minutes Azure refuses signed addresses"
    )
    return failed_check("clock of Azure", finding, "Run: sudo timedatectl set-ntp true")


def check_public_url(azure: ArmClient) -> Iterator[CheckResult]:
    """Check the public URL from here; nodes call it from their own network."""
    url = azure.setting("PUBLIC_URL")
    parts = urlsplit(url)
    try:
        resolved = socket.getaddrinfo(parts.hostname, parts.port or 443) if parts.hostname else []
    except OSError as error:
        yield failed_check("public URL", f"{parts.hostname}: {first_line(error)}", _RECORD)
        return
    addresses = {str(row[4][0]).partition("%")[0] for row in resolved}
    yield check_addresses(
        url, addresses, _certificate_fault(url) if url.startswith("https:") else ""
    )


def check_addresses(url: str, addresses: set[str], fault: str) -> CheckResult:
    """Check the public URL's addresses; ``fault`` is what is wrong with its certificate."""
    name, parsed = "public URL", [ipaddress.ip_address(address) for address in addresses]
    if not parsed or any(a.is_loopback or a.is_unspecified for a in parsed):
        return failed_check(
            name, f"{url or 'none'} is a local address that nodes cannot reach", _RECORD
        )
    if not url.startswith("https:"):
        return doubtful_check(name, f"{url} is not HTTPS; tokens are sent unencrypted", _RECORD)
    if fault:
        return failed_check(name, f"{url}: {fault}", "See: az keyvault certificate list")
    if any(not a.is_global for a in parsed):
        finding = f"{url} is {', '.join(sorted(addresses))}; nodes' networks must be peered with it"
        return doubtful_check(
            name, finding, "See: az network vnet peering list -g GROUP --vnet-name NETWORK"
        )
    return passed_check(name, f"{url} has a public address and a valid certificate")


def _certificate_fault(url: str) -> str:
    """Return why the certificate is refused; "" if it is valid."""
    host, port = urlsplit(url).hostname or "", urlsplit(url).port or 443
    try:
        with socket.create_connection((host, port), timeout=TIMEOUT_SECONDS) as plain:
            ssl.create_default_context().wrap_socket(plain, server_hostname=host).close()
    except ssl.SSLError as error:
        return first_line(error)
    except OSError as error:
        return f"does not answer: {first_line(error)}"
    return ""


def check_trainer_image(image: str) -> CheckResult:
    """Check that nodes can pull the trainer image from a registry."""
    host = image.partition("/")[0] if "/" in image else ""
    if "." not in host and ":" not in host:
        remedy = "Set REKINDLE_TRAINER_IMAGE. Run: az acr login -n NAME && docker push IMAGE"
        return failed_check("trainer image", f"{image or 'none'} has no registry", remedy)
    name, _, reference = image.removeprefix(f"{host}/").partition("@")
    name, _, tag = name.partition(":")
    registry = host.partition(".")[0]
    see = f"See: az acr repository show -n {registry} --image {name}:{tag or 'latest'}"
    url = f"https://{host}/v2/{name}/manifests/{reference or tag or 'latest'}"
    try:
        answer = httpx.head(url, timeout=TIMEOUT_SECONDS, follow_redirects=True)
    except httpx.HTTPError as error:
        return failed_check("trainer image", f"{host}: {first_line(error)}", see)
    if answer.status_code in (401, 403):
        return doubtful_check("trainer image", f"{host} requires authentication for {name}", see)
    if answer.is_error:
        return failed_check("trainer image", f"{image}: {answer.status_code}", see)
    return passed_check("trainer image", image)
