"""Refusals of Blob Storage say what is missing: a role, a network rule, the account's URL."""

import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError

from service.storage.azure_errors import translate_errors
from service.storage.store import StorageError


@pytest.mark.parametrize(
    ("code", "remedies"),
    [
        ("AuthorizationPermissionMismatch", ["assign Storage Blob Data Contributor", "10 minutes"]),
        ("AuthorizationFailure", ["firewall", "assign Storage Blob Data Contributor"]),
        (
            "KeyBasedAuthenticationNotPermitted",
            ["https://ACCOUNT.blob.core.windows.net", "assign Storage Blob Data Contributor"],
        ),
    ],
)
async def test_a_refusal_names_its_code_and_the_role_that_is_missing(
    code: str, remedies: list[str]
) -> None:
    error = HttpResponseError("This request is not authorized to perform this operation.")
    error.error_code = code  # type: ignore[attr-defined]  # the client sets it from the answer
    with pytest.raises(StorageError) as refused:
        async with translate_errors("job/HEAD"):
            raise error

    assert str(refused.value).startswith(f"job/HEAD: {code}: ")
    assert all(remedy in str(refused.value) for remedy in remedies)


async def test_a_sign_in_that_fails_is_told_as_one() -> None:
    with pytest.raises(StorageError, match="cannot sign in to Microsoft Entra ID: AADSTS7000215"):
        async with translate_errors("job/HEAD"):
            raise ClientAuthenticationError("AADSTS7000215: Invalid client secret provided.")
