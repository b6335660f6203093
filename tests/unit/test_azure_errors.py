"""Every refusal of Azure's leads to the right error of ours, by code and not by class."""

import ssl

import pytest
from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError

from service.cloud.azure_errors import TABLE, Row, classify, quota, translated
from service.cloud.provider import (
    CloudError,
    InsufficientCapacity,
    Misconfigured,
    ScaleSetNotFound,
    Throttled,
)

# (code, status, message) -> the error; together they reach every row of the table.
SEEN: dict[tuple[str, int, str], type[CloudError]] = {
    ("OperationNotAllowed", 429, "The server rejected the request: too many requests"): Throttled,
    ("TooManyRequests", 503, ""): Throttled,
    ("AllocationFailed", 200, "We do not have sufficient capacity"): InsufficientCapacity,
    ("ZonalAllocationFailed", 200, ""): InsufficientCapacity,
    ("OverconstrainedAllocationRequest", 200, ""): InsufficientCapacity,
    ("OverconstrainedZonalAllocationRequest", 200, ""): InsufficientCapacity,
    ("SkuNotAvailable", 409, "The requested tier is not available"): InsufficientCapacity,
    ("SpotPriceGreaterThanProvidedMaxPrice", 409, ""): InsufficientCapacity,
    ("OperationNotAllowed", 409, "exceeding approved LowPriorityCores quota"): InsufficientCapacity,
    ("QuotaExceeded", 409, "would exceed the quota"): InsufficientCapacity,
    ("AuthorizationFailed", 403, ""): Misconfigured,
    ("LinkedAuthorizationFailed", 403, ""): Misconfigured,
    ("ResourceGroupNotFound", 404, ""): Misconfigured,
    ("SubscriptionNotFound", 404, ""): Misconfigured,
    ("AzureSpotIsNotSupportedForThisVMSize", 409, ""): Misconfigured,
    ("MissingSubscriptionRegistration", 409, ""): Misconfigured,
    ("ResourceNotFound", 404, ""): ScaleSetNotFound,
    ("InvalidAuthenticationToken", 401, ""): Misconfigured,
    ("RequestDisallowedByPolicy", 403, ""): Misconfigured,
    ("Forbidden", 403, ""): Misconfigured,
    ("NotSupported", 409, "The Diff Disk Placement of type 'CacheDisk' is"): Misconfigured,
    (
        "InvalidParameter",
        400,
        "because the 'Microsoft.Compute/EncryptionAtHost' feature is not enabled",
    ): Misconfigured,
    ("InvalidParameter", 400, ""): Misconfigured,
}

UNKNOWN = [
    ("OperationNotAllowed", 409, "the set is marked for deletion"),
    ("Conflict", 409, ""),
    ("InternalServerError", 500, ""),
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
    assert classify(*answer) == Row(error=CloudError)


def test_every_row_is_reached() -> None:
    assert {id(row) for row in TABLE} == {id(classify(*answer)) for answer in SEEN}


def test_whoever_must_act_is_told_what_to_do() -> None:
    silent = [row for row in TABLE if row.error is Misconfigured and not row.remedy]

    assert silent == []


def test_without_a_token_a_person_must_act() -> None:
    error = translated(ClientAuthenticationError("No credential gave a token."))

    assert isinstance(error, Misconfigured)
    assert "identity" in str(error)


def test_a_certificate_that_is_not_trusted_is_no_outage() -> None:
    refused = ServiceRequestError("cannot connect", error=ssl.SSLCertVerificationError("self-made"))

    assert isinstance(translated(refused), Misconfigured)


def test_a_broken_connection_is_worth_another_try() -> None:
    broken = ServiceRequestError("cannot connect", error=ConnectionRefusedError())

    assert type(translated(broken)) is CloudError


def test_a_quota_is_named_with_its_region_and_what_is_missing() -> None:
    told = quota(
        "Operation could not be completed as it results in exceeding approved LowPriorityCores"
        " quota. Additional details - Deployment Model: Resource Manager, Location: eastus,"
        " Current Limit: 100, Current Usage: 96, Additional Required: 192, (Minimum) New Limit"
        " Required: 288. Submit a request for Quota increase at https://aka.ms/ProdportalCRP/."
    )

    assert told == (
        "The quota 'Total Regional Spot vCPUs' (LowPriorityCores) of eastus is used up: 96 of 100"
        " cores are in use and 288 are needed."
    )


def test_a_refusal_in_other_words_is_told_as_it_came() -> None:
    assert quota("Quota exceeded.") == "Quota exceeded."
