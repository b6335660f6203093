"""Every refusal of Azure's leads to the right error of ours, by code and not by class."""

from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError
from azure.mgmt.core.exceptions import ARMErrorFormat

from emulator.core.errors import disallowed_by_policy
from service.cloud.azure.denials import REMEDY
from service.cloud.azure.errors import (
    TABLE,
    ErrorRule,
    classify,
    classify_failure,
    quota,
    translate_error,
)
from service.cloud.provider import (
    CloudError,
    InsufficientCapacity,
    Misconfigured,
    ScaleSetNotFound,
    Throttled,
)
from service.domain.cloud.fleet import ScaleSetFailure

TIME_IS_OVER = "OS Provisioning for VM 'a' did not finish in the allotted time."
IMAGE_IS_WRONG = f"{TIME_IS_OVER} However, the VM guest agent was detected running."
NO_ROOM = (InsufficientCapacity, ScaleSetFailure.NO_CAPACITY)
A_PERSON = (Misconfigured, ScaleSetFailure.MISCONFIGURED)
AGAIN = (CloudError, ScaleSetFailure.TRANSIENT)
# (code, status, message) -> the error; with BOTH_WAYS they reach every row of the table.
SEEN: dict[tuple[str, int, str], type[CloudError]] = {
    ("OperationNotAllowed", 429, "The server rejected the request: too many requests"): Throttled,
    ("TooManyRequests", 503, ""): Throttled,
    ("SpotPriceGreaterThanProvidedMaxPrice", 409, ""): InsufficientCapacity,
    ("OperationNotAllowed", 409, "exceeding approved LowPriorityCores quota"): InsufficientCapacity,
    ("AuthorizationFailed", 403, ""): Misconfigured,
    ("ResourceGroupNotFound", 404, ""): Misconfigured,
    ("SubscriptionNotFound", 404, ""): Misconfigured,
    ("AzureSpotIsNotSupportedForThisVMSize", 409, ""): Misconfigured,
    ("MissingSubscriptionRegistration", 409, ""): Misconfigured,
    ("ResourceNotFound", 404, ""): ScaleSetNotFound,
    ("InvalidAuthenticationToken", 401, ""): Misconfigured,
    ("Forbidden", 403, ""): Misconfigured,
    ("NotSupported", 409, "The Diff Disk Placement of type 'CacheDisk' is"): Misconfigured,
    (
        "InvalidParameter",
        400,
        "because the 'Microsoft.Compute/EncryptionAtHost' feature is not enabled",
    ): Misconfigured,
    ("ResourcePurchaseValidationFailed", 400, "Legal terms have not been accepted"): Misconfigured,
    ("InvalidParameter", 200, ""): Misconfigured,
    ("PropertyChangeNotAllowed", 400, ""): Misconfigured,
    ("SomethingElse", 403, ""): Misconfigured,
}
# The same code and message both ways: at once with its status, and minutes after acceptance.
BOTH_WAYS: dict[tuple[str, int, str], tuple[type[CloudError], ScaleSetFailure]] = {
    ("AllocationFailed", 409, "no room"): NO_ROOM,
    ("ZonalAllocationFailed", 409, "no room"): NO_ROOM,
    ("OverconstrainedAllocationRequest", 409, "no room"): NO_ROOM,
    ("OverConstrainedAllocationRequest", 409, "not currently available"): NO_ROOM,
    ("OverconstrainedZonalAllocationRequest", 409, "no room"): NO_ROOM,
    ("SkuNotAvailable", 409, "not available"): NO_ROOM,
    ("QuotaExceeded", 409, "Operation results in exceeding quota limits of Core."): NO_ROOM,
    # kubernetes/autoscaler issue 2607
    ("OperationNotAllowed", 409, "exceeding quota limit of standardDSv3Family Cores"): NO_ROOM,
    ("ClusterCoreQuotaReached", 409, "no cores"): NO_ROOM,
    ("ClusterMinNodesExceedCoreQuota", 400, "no cores"): NO_ROOM,
    ("RequestDisallowedByPolicy", 403, "disallowed by policy"): A_PERSON,
    ("RequestDisallowedByAzure", 403, "best available regions"): A_PERSON,
    ("PlatformImageNotFound", 404, "not found"): A_PERSON,
    ("GalleryImageNotFound", 404, "not found"): A_PERSON,
    ("NotFound", 404, "The Image ours cannot be found."): A_PERSON,
    ("SubscriptionNotAuthorizedForImage", 403, "not authorized"): A_PERSON,
    ("VMMarketplaceInvalidInput", 400, "requires Plan information"): A_PERSON,
    ("MarketplacePurchaseEligibilityFailed", 400, "eligibility check returned errors"): A_PERSON,
    ("InvalidJsonReferenceFormat", 400, "is not formatted correctly"): A_PERSON,
    ("InvalidResourceReference", 400, "subnets/nodes was not found"): A_PERSON,
    ("SubnetIsFull", 400, "not enough capacity for 8 IP addresses"): A_PERSON,
    ("LinkedAuthorizationFailed", 403, "no permission"): A_PERSON,
    ("InvalidParameter", 400, "The value of parameter is invalid."): A_PERSON,
    ("OSProvisioningClientError", 409, "SSH host key generation failed."): A_PERSON,
    ("OSProvisioningTimedOut", 409, IMAGE_IS_WRONG): A_PERSON,
    ("VMExtensionHandlerNonTransientError", 409, "terminal error"): A_PERSON,
    ("VMExtensionProvisioningError", 409, "reported a failure"): A_PERSON,
    ("OSProvisioningTimedOut", 409, TIME_IS_OVER): AGAIN,
    ("OSProvisioningClientError", 409, TIME_IS_OVER): AGAIN,  # Azure/azure-cli issue 29203
    ("OSProvisioningInternalError", 409, "an internal error"): AGAIN,
    ("VMExtensionProvisioningTimeout", 409, "has timed out"): AGAIN,
    ("VMStartTimedOut", 409, "did not start in the allotted time"): AGAIN,
    ("InternalExecutionError", 500, "retry later"): AGAIN,
    ("NetworkingInternalOperationError", 500, "Unknown network allocation error."): AGAIN,
    ("OperationPreempted", 409, "a more recent operation"): AGAIN,
    ("Canceled", 409, "canceled"): AGAIN,
    ("BrandNewCode", 409, "something"): AGAIN,
}

UNKNOWN = [
    ("OperationNotAllowed", 409, "the set is marked for deletion"),
    ("Conflict", 409, ""),
    ("ServerTimeout", 504, ""),
    ("NotFound", 404, "no such page"),
    ("", 404, "a proxy's own page"),
    ("BrandNewCode", 409, ""),
]


@pytest.mark.parametrize("answer", SEEN, ids=lambda answer: f"{answer[1]}-{answer[0]}")
def test_a_known_code_means_what_the_caller_does_next(answer: tuple[str, int, str]) -> None:
    assert classify(*answer).error is SEEN[answer]


@pytest.mark.parametrize("answer", UNKNOWN, ids=lambda answer: f"{answer[1]}-{answer[0]}")
def test_an_unknown_code_is_a_bare_cloud_error(answer: tuple[str, int, str]) -> None:
    assert classify(*answer) == ErrorRule(error=CloudError)


@pytest.mark.parametrize("answer", BOTH_WAYS, ids=lambda answer: f"{answer[0]}-{answer[2][:20]}")
def test_a_code_means_the_same_at_once_and_after_acceptance(answer: tuple[str, int, str]) -> None:
    code, status, message = answer
    error, failure = BOTH_WAYS[answer]
    late, translated = classify_failure(code, message)

    assert classify(code, status, message).error is error
    assert late is failure
    assert translated.startswith(message.rstrip("."))
    assert (len(translated) > len(message) + 1) == bool(classify(code, 200, message).remedy)


def test_a_policy_that_denies_a_request_is_named_with_who_can_grant_an_exemption() -> None:
    body = disallowed_by_policy("rk-1", "sub", "Allowed VM sizes").body
    message = str(translate_error(_answer(403, body)))

    assert message == (
        "RequestDisallowedByPolicy: Azure Policy denies it: 'Allowed VM sizes' (assignment"
        " 'Allowed VM sizes', /subscriptions/sub/providers/Microsoft.Authorization/"
        f"policyAssignments/allowed-vm-sizes). {REMEDY}"
    )
    assert "Resource Policy Contributor" in message


@pytest.mark.parametrize("additional_info", [[], [{"type": "Other", "info": {}}]])
def test_without_details_the_policy_is_read_from_the_message(
    additional_info: list[dict[str, Any]],
) -> None:
    body = disallowed_by_policy("rk-1", "sub", "Allowed VM sizes").body
    body["error"]["additionalInfo"] = additional_info
    at_once = str(translate_error(_answer(403, body)))
    kind, late = classify_failure(body["error"]["code"], body["error"]["message"])

    assert "'Allowed VM sizes' (assignment 'Allowed VM sizes', /subscriptions/sub" in at_once
    assert at_once == f"RequestDisallowedByPolicy: {late}"
    assert kind is ScaleSetFailure.MISCONFIGURED


def test_a_denial_that_names_no_policy_is_told_as_it_came() -> None:
    _, message = classify_failure("RequestDisallowedByPolicy", "Policy identifiers: '[nonsense]'.")

    assert message == f"Policy identifiers: '[nonsense]'. {REMEDY}"


def _answer(status: int, body: dict[str, Any]) -> HttpResponseError:
    error = HttpResponseError("refused")
    error.status_code, error.error = status, ARMErrorFormat(body)
    return error


def test_every_row_is_reached() -> None:
    assert {id(row) for row in TABLE} <= {id(classify(*a)) for a in (*SEEN, *BOTH_WAYS)}


def test_whoever_must_act_is_told_what_to_do() -> None:
    silent = [row for row in TABLE if row.error is Misconfigured and not row.remedy]

    assert silent == []
    unregistered = classify("MissingSubscriptionRegistration", 409, "")
    assert "az provider register" in unregistered.remedy
    assert "REKINDLE_AZURE_POLICY" in REMEDY


def test_a_quota_is_named_with_its_region_and_what_is_missing() -> None:
    message = quota(
        "Operation could not be completed as it results in exceeding approved LowPriorityCores"
        " quota. Additional details - Deployment Model: Resource Manager, Location: eastus,"
        " Current Limit: 100, Current Usage: 96, Additional Required: 192, (Minimum) New Limit"
        " Required: 288. Submit a request for Quota increase at https://aka.ms/ProdportalCRP/."
    )

    assert message == (
        "The quota 'Total Regional Spot vCPUs' (LowPriorityCores) of eastus is used up: 96 of 100"
        " cores are in use and 288 are needed."
    )


def test_a_refusal_in_other_words_is_told_as_it_came() -> None:
    assert quota("Quota exceeded.") == "Quota exceeded."
