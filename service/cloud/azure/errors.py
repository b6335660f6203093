"""Classify Azure's errors by code, status and message: one table, the first match wins.

It serves both the answer to a request and the failure of an accepted operation minutes later, which
has a code and a message and no status. Unless a row names another source, its codes and messages
are those of azure-docs, virtual-machines/troubleshooting/error-messages ("Understand common error
messages").

A 409 alone says nothing: Azure sends it for a used-up quota, for a sold-out size and for a conflict
with an operation under way, and the SDK raises ResourceExistsError for each. So rows test the error
code. A 409 without a row is a CloudError, which the reconciler retries. A 429 is Throttled, with
Azure's Retry-After; `service/reconciler/cloud/rate_limit.py` defers the attempt's call.
"""

import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError

from service.cloud.azure import denials
from service.cloud.provider import (
    CloudError,
    InsufficientCapacity,
    Misconfigured,
    ScaleSetNotFound,
    Throttled,
)
from service.domain.cloud.fleet import ScaleSetFailure

_IMAGE = (
    "Correct REKINDLE_AZURE_IMAGE: the image must exist in the region (replicate a gallery image"
    " there) and be generalized."
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
class ErrorRule:
    """Matches when all its stated conditions hold; ``code`` and ``message`` are patterns."""

    error: type[CloudError]
    code: str = ""
    status: int = 0
    message: str = ""
    remedy: str = ""

    def matches(self, code: str, status: int, message: str) -> bool:
        """Return whether the answer has this code (in full), status and message (in part)."""
        if self.status and status != self.status:
            return False
        if self.code and not re.fullmatch(self.code, code, re.IGNORECASE):
            return False
        return re.search(self.message, message, re.IGNORECASE) is not None


TABLE: tuple[ErrorRule, ...] = (
    ErrorRule(error=Throttled, status=429),
    ErrorRule(error=Throttled, code="TooManyRequests"),
    ErrorRule(
        error=InsufficientCapacity,
        code="(Zonal)?AllocationFailed|Overconstrained(Zonal)?AllocationRequest|SkuNotAvailable",
    ),
    ErrorRule(error=InsufficientCapacity, code="SpotPriceGreaterThanProvidedMaxPrice"),
    ErrorRule(
        error=InsufficientCapacity,
        code="OperationNotAllowed|QuotaExceeded",
        message="quota",
        remedy="Raise it in the Azure portal under Quotas > Compute, or allow other regions.",
    ),
    ErrorRule(  # of clusters in Azure ML, which have cores of their own
        error=InsufficientCapacity,
        code="Cluster(Min)?(Nodes)?(Exceed)?CoreQuota(Reached)?",
        remedy="Raise it in Azure Machine Learning studio under Quota, or allow other offerings.",
    ),
    ErrorRule(
        error=Misconfigured,
        code="(Linked)?AuthorizationFailed",
        remedy=(
            "Give the service's identity Virtual Machine Contributor and Network Contributor on"
            " the resource group, and Managed Identity Operator on the nodes' identity."
        ),
    ),
    ErrorRule(
        error=Misconfigured,
        code="RequestDisallowedByPolicy",
        remedy=denials.REMEDY,
    ),
    ErrorRule(  # Azure's own rule for the subscription
        error=Misconfigured,
        code="RequestDisallowedByAzure",
        remedy="Take regions out of REKINDLE_OFFERINGS that the subscription may not use.",
    ),
    # A gallery image that has no copy in the region: terraform-provider-azurerm issue 25012.
    ErrorRule(
        error=Misconfigured,
        code="(Platform|Gallery)ImageNotFound|ImageBlobNotFound|SubscriptionNotAuthorizedForImage",
        remedy=_IMAGE,
    ),
    # A Marketplace image with a purchase plan (Azure/sap-automation issue 433). To accept its terms
    # is not enough: the request must name the plan.
    ErrorRule(
        error=Misconfigured,
        code=(
            "VMMarketplaceInvalidInput|ResourcePurchaseValidationFailed"
            "|MarketplacePurchaseEligibilityFailed"
        ),
        remedy="Set REKINDLE_AZURE_IMAGE to an image without a purchase plan: Rekindle sends none.",
    ),
    ErrorRule(error=Misconfigured, code="NotFound", message=r"\bimage\b", remedy=_IMAGE),
    # A subnet or network that is not there (azure-docs issue 81734), an id that is none of a subnet
    # (azure-cli issue 2081), no address left (azure-docs issue 88211).
    ErrorRule(
        error=Misconfigured,
        code="InvalidResourceReference|InvalidJsonReferenceFormat|SubnetIsFull",
        remedy="Correct REKINDLE_AZURE_SUBNET_ID: it must exist, with free addresses.",
    ),
    # The time ran out: the machine may still come up. Azure gives either code with these words
    # (Azure/azure-cli issue 29203). With the guest agent running it is the image that is wrong.
    ErrorRule(
        error=Misconfigured,
        code="OSProvisioning.*",
        message="guest agent was detected running",
        remedy=_IMAGE,
    ),
    ErrorRule(error=CloudError, code="OSProvisioning.*", message="allotted time"),
    ErrorRule(error=Misconfigured, code="OSProvisioningClientError", remedy=_IMAGE),
    # Rekindle installs no extension: a policy of the subscription does.
    ErrorRule(
        error=Misconfigured,
        code="VMExtension(HandlerNonTransientError|ProvisioningError)|Artifact(Version)?NotFound",
        remedy="Mend the VM extension that an Azure Policy adds, or exempt the resource group.",
    ),
    ErrorRule(
        error=CloudError,
        code=(
            "InternalExecutionError|Internal(Server|Operation)?Error|Canceled|OperationCanceled"
            "|OperationPreempted|NetworkingInternalOperationError|OSProvisioningInternalError"
            "|OSProvisioningTimedOut|VMStartTimedOut|VMAgentStatusCommunicationError"
            "|VMExtension(ProvisioningTimeout|ManagementInternalError)"
            "|ResourceUpdateBlockedOnPlatformUpdate|DiskImageNotReady"
        ),
    ),
    ErrorRule(
        error=Misconfigured,
        code="ResourceGroupNotFound|SubscriptionNotFound|InvalidSubscriptionId",
        remedy="Correct the subscription id and the resource group in the settings.",
    ),
    ErrorRule(
        error=Misconfigured,
        code="AzureSpotIsNotSupportedForThisVMSize|AzureSpotFeatureNotEnabledForSubscription",
        remedy="Use another VM size, or capacity type on_demand.",
    ),
    ErrorRule(
        error=Misconfigured,
        message="Microsoft.Compute/EncryptionAtHost' feature",
        remedy=(
            "Run: az feature register --namespace Microsoft.Compute --name EncryptionAtHost; then"
            " az provider register --namespace Microsoft.Compute."
        ),
    ),
    ErrorRule(  # 409 for an ephemeral OS disk that the size cannot hold: it never will
        error=Misconfigured,
        code="NotSupported",
        remedy="Set os_disk_placement or os_disk_gib in REKINDLE_AZURE_POLICY, or another VM size.",
    ),
    ErrorRule(
        error=Misconfigured,
        code="MissingSubscriptionRegistration",
        remedy="Register the resource provider: az provider register --namespace NAME.",
    ),
    ErrorRule(error=ScaleSetNotFound, code="(Parent)?ResourceNotFound", status=404),
    ErrorRule(
        error=Misconfigured,
        status=401,
        remedy="Check the service's identity: tenant, client id and secret or federation.",
    ),
    ErrorRule(
        error=Misconfigured, status=403, remedy="Check the service's roles and Azure policies."
    ),
    ErrorRule(
        error=Misconfigured,
        code="InvalidParameter|BadRequest",
        remedy="Check the Azure settings of the service.",
    ),
    ErrorRule(error=Misconfigured, status=400, remedy="Check the Azure settings of the service."),
)


def classify(code: str, status: int, message: str) -> ErrorRule:
    """Return the first matching row; an unknown answer is a bare CloudError."""
    matching = (row for row in TABLE if row.matches(code, status, message))
    return next(matching, ErrorRule(error=CloudError))


def classify_failure(code: str, message: str) -> tuple[ScaleSetFailure, str]:
    """Return the kind of an accepted operation's failure, and its message.

    Poll and view answer HTTP 200 whatever the code is.
    """
    row = classify(code, 200, message)
    kind = {
        InsufficientCapacity: ScaleSetFailure.NO_CAPACITY,
        Misconfigured: ScaleSetFailure.MISCONFIGURED,
    }
    return kind.get(row.error, ScaleSetFailure.TRANSIENT), _explain(row, message)


def translate_error(error: AzureError) -> CloudError:
    """Return the CloudError that says what to do about ``error``."""
    if isinstance(error, HttpResponseError) and error.status_code is not None:
        return _translate_response(error)
    if isinstance(error, ClientAuthenticationError):
        return Misconfigured(
            f"No token for Azure: {error.message} Check the service's identity and its settings."
        )
    if _is_certificate_error(error):
        return Misconfigured(
            f"Azure's certificate is not trusted: {error.message}. Check the endpoint and the CA."
        )
    return CloudError(f"Azure cannot be reached: {error.message}")


def quota(text: str) -> str:
    """Return a refusal over a quota in one sentence: which one, where, how much is missing."""
    match = _QUOTA.search(text)
    if match is None:
        return text
    name, region, limit, usage, needed = match.groups()
    display_name = _QUOTA_NAMES.get(name.lower())
    label = f"'{display_name}' ({name})" if display_name else name
    return (
        f"The quota {label} of {region} is used up: {usage} of {limit} cores are in use and"
        f" {needed} are needed."
    )


def _translate_response(error: HttpResponseError) -> CloudError:
    code = (error.error.code if error.error else None) or ""
    text = (error.error.message if error.error else None) or error.message
    status = error.status_code or 0
    row = classify(code, status, text)
    infos = getattr(error.error, "additional_info", ())
    message = f"{code or status}: {_explain(row, text, [i.info for i in infos if _denies(i)])}"
    if row.error is Throttled:
        return Throttled(message, code, _retry_after(error))
    return row.error(message, code)


def _denies(info: Any) -> bool:  # noqa: ANN401 - azure.mgmt.core's TypedErrorInfo
    return info.type == "PolicyViolation" and isinstance(info.info, Mapping)


def _explain(row: ErrorRule, text: str, infos: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return Azure's message, or a better one, with the remedy."""
    denied = denials.denials(text, infos)
    policies = " and ".join(map(str, denied))
    cause = f"Azure Policy denies it: {policies}" if denied else quota(text)
    cause = cause.rstrip(". ")
    return " ".join(part for part in (cause and f"{cause}.", row.remedy) if part)


def _retry_after(error: HttpResponseError, default: float = 10.0) -> float:
    headers = getattr(error.response, "headers", {})
    try:
        return float(headers.get("Retry-After", default))
    except ValueError:
        return default  # the HTTP-date form, which Azure does not use


def _is_certificate_error(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return True
        inner = getattr(error, "inner_exception", None) or getattr(error, "certificate_error", None)
        error = inner or error.__cause__ or error.__context__
    return False
