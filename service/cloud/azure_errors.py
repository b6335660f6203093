"""What Azure's refusals mean to us: one table, first match wins.

Rows look at the error code, never at the SDK's exception class: there every 409 is a
ResourceExistsError, be it a used-up quota or a sold-out size.
"""

import re
import ssl
from dataclasses import dataclass

from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError

from service.cloud.provider import (
    CloudError,
    InsufficientCapacity,
    Misconfigured,
    ScaleSetNotFound,
    Throttled,
)

_QUOTA = re.compile(
    r"exceeding approved (\w+) quota.*?Location: (\w+), Current Limit: (\d+),"
    r" Current Usage: (\d+), Additional Required: \d+, \(Minimum\) New Limit Required: (\d+)",
    re.IGNORECASE | re.DOTALL,
)
_QUOTA_NAMES = {  # as the portal shows them
    "lowprioritycores": "Total Regional Spot vCPUs",
    "cores": "Total Regional vCPUs",
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """Matches when every condition that it states holds; ``code`` and ``message`` are patterns."""

    error: type[CloudError]
    code: str = ""
    status: int = 0
    message: str = ""
    remedy: str = ""

    def matches(self, code: str, status: int, message: str) -> bool:
        """True for an answer with this code (in full), status and message (somewhere in it)."""
        if self.status and status != self.status:
            return False
        if self.code and not re.fullmatch(self.code, code, re.IGNORECASE):
            return False
        return re.search(self.message, message, re.IGNORECASE) is not None


TABLE: tuple[Row, ...] = (
    Row(error=Throttled, status=429),
    Row(error=Throttled, code="TooManyRequests"),
    Row(
        error=InsufficientCapacity,
        code="(Zonal)?AllocationFailed|Overconstrained(Zonal)?AllocationRequest|SkuNotAvailable",
    ),
    Row(error=InsufficientCapacity, code="SpotPriceGreaterThanProvidedMaxPrice"),
    Row(
        error=InsufficientCapacity,
        code="OperationNotAllowed|QuotaExceeded",
        message="quota",
        remedy="Raise it in the Azure portal under Quotas > Compute, or allow other regions.",
    ),
    Row(
        error=Misconfigured,
        code="(Linked)?AuthorizationFailed",
        remedy=(
            "Give the service's identity Virtual Machine Contributor and Network Contributor on"
            " the resource group, and Managed Identity Operator on the nodes' identity."
        ),
    ),
    Row(
        error=Misconfigured,
        code="ResourceGroupNotFound|SubscriptionNotFound|InvalidSubscriptionId",
        remedy="Correct the subscription id and the resource group in the settings.",
    ),
    Row(
        error=Misconfigured,
        code="AzureSpotIsNotSupportedForThisVMSize|AzureSpotFeatureNotEnabledForSubscription",
        remedy="Use another VM size, or capacity type on_demand.",
    ),
    Row(
        error=Misconfigured,
        code="RequestDisallowedByPolicy",
        remedy="Set what the Azure policy asks for in REKINDLE_AZURE_POLICY (tags, zones, disks).",
    ),
    Row(
        error=Misconfigured,
        message="Microsoft.Compute/EncryptionAtHost' feature",
        remedy=(
            "Run: az feature register --namespace Microsoft.Compute --name EncryptionAtHost; then"
            " az provider register --namespace Microsoft.Compute."
        ),
    ),
    Row(  # 409 for an ephemeral OS disk that the size cannot hold: it never will
        error=Misconfigured,
        code="NotSupported",
        remedy="Set os_disk_placement or os_disk_gib in REKINDLE_AZURE_POLICY, or another VM size.",
    ),
    Row(
        error=Misconfigured,
        code="MissingSubscriptionRegistration",
        remedy="Register the resource provider: az provider register --namespace NAME.",
    ),
    Row(error=ScaleSetNotFound, code="(Parent)?ResourceNotFound", status=404),
    Row(
        error=Misconfigured,
        status=401,
        remedy="Check the service's identity: tenant, client id and secret or federation.",
    ),
    Row(error=Misconfigured, status=403, remedy="Check the service's roles and Azure policies."),
    Row(error=Misconfigured, status=400, remedy="Check the Azure settings of the service."),
)


def classify(code: str, status: int, message: str) -> Row:
    """The first row that matches; an unknown answer is a bare CloudError."""
    matching = (row for row in TABLE if row.matches(code, status, message))
    return next(matching, Row(error=CloudError))


def translated(error: AzureError) -> CloudError:
    """The error of ours that says what to do about ``error``."""
    if isinstance(error, HttpResponseError) and error.status_code is not None:
        return _answered(error)
    if isinstance(error, ClientAuthenticationError):
        return Misconfigured(
            f"No token for Azure: {error.message} Check the service's identity and its settings."
        )
    if _certificate_refused(error):
        return Misconfigured(
            f"Azure's certificate is not trusted: {error.message}. Check the endpoint and the CA."
        )
    return CloudError(f"Azure cannot be reached: {error.message}")


def quota(text: str) -> str:
    """Azure's refusal over a quota in one sentence: which one, where, how much is missing."""
    found = _QUOTA.search(text)
    if found is None:
        return text
    name, region, limit, usage, wanted = found.groups()
    known = _QUOTA_NAMES.get(name.lower())
    called = f"'{known}' ({name})" if known else name
    return (
        f"The quota {called} of {region} is used up: {usage} of {limit} cores are in use and"
        f" {wanted} are needed."
    )


def _answered(error: HttpResponseError) -> CloudError:
    code = (error.error.code if error.error else None) or ""
    text = (error.error.message if error.error else None) or error.message
    status = error.status_code or 0
    row = classify(code, status, text)
    what = f"{code or status}: {quota(text).rstrip('. ')}."
    message = " ".join(part for part in (what, row.remedy) if part)
    if row.error is Throttled:
        return Throttled(message, code, _retry_after(error))
    return row.error(message, code)


def _retry_after(error: HttpResponseError, default: float = 10.0) -> float:
    headers = getattr(error.response, "headers", {})
    try:
        return float(headers.get("Retry-After", default))
    except ValueError:
        return default  # the HTTP-date form, which Azure does not use


def _certificate_refused(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return True
        inner = getattr(error, "inner_exception", None) or getattr(error, "certificate_error", None)
        error = inner or error.__cause__ or error.__context__
    return False
