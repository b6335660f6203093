"""Translate errors of Blob Storage's client into the seam's, with what to do about them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError

from service.storage.store import (
    BlobArchived,
    BlobNotFound,
    PreconditionFailed,
    StorageError,
)

MISSING = frozenset({"BlobNotFound", "ContainerNotFound"})
_ALL_MISSING_CODES = MISSING | {"InvalidBlockList"}
_ARCHIVED = frozenset({"BlobArchived", "BlobBeingRehydrated"})
_CONFLICTS = frozenset(
    {"BlobAlreadyExists", "ConditionNotMet", "TargetConditionNotMet", "UnauthorizedBlobOverwrite"}
)
_ROLE = (
    "Storage Blob Data Contributor on the account (not on a container: user delegation keys are"
    " the account's)"
)
# Microsoft Learn, "Troubleshoot 403 errors in Azure Blob Storage" and "Shared access signature
# error codes"; of keys: "Prevent Shared Key authorization".
_REMEDIES = {
    "AuthorizationPermissionMismatch": (
        f"The service's identity lacks a role: assign {_ROLE}. A new role works after up to"
        " 10 minutes."
    ),
    "AuthorizationFailure": (
        "The account's firewall keeps this machine out, or the service's identity lacks a role:"
        f" allow the machine's network, and assign {_ROLE}."
    ),
    "KeyBasedAuthenticationNotPermitted": (
        "The account refuses its keys (allowSharedKeyAccess is false). Give its URL in place of"
        f" the connection string, https://ACCOUNT.blob.core.windows.net, and assign {_ROLE}."
    ),
}


@asynccontextmanager
async def translate_errors(
    subject: str, *, allow: frozenset[str] = frozenset()
) -> AsyncIterator[None]:
    """Translate the SDK's errors into ours; suppress those whose code is in ``allow``."""
    try:
        yield
    except HttpResponseError as error:
        code = _code(error)
        if code in allow:
            return
        if code in _ALL_MISSING_CODES:
            raise BlobNotFound(f"There is no {subject}: {code}") from error
        if code in _ARCHIVED:
            raise BlobArchived(f"{subject} is archived; bring it back first: {code}") from error
        if code in _CONFLICTS or error.status_code == 412:
            raise PreconditionFailed(f"{subject} was written meanwhile: {code}") from error
        raise StorageError(f"{subject}: {_refusal(error, code)}") from error
    except AzureError as error:
        raise StorageError(f"{subject}: Blob Storage cannot be reached: {error.message}") from error


def _code(error: HttpResponseError) -> str:
    """Return the error code as text; the SDK gives an enumeration member for some codes."""
    code = getattr(error, "error_code", None) or ""
    return str(getattr(code, "value", code))


def _refusal(error: HttpResponseError, code: str) -> str:
    if remedy := _REMEDIES.get(code):
        return f"{code}: {remedy}"
    if isinstance(error, ClientAuthenticationError) and not code:  # of azure-identity
        return f"the service cannot sign in to Microsoft Entra ID: {error.message}"
    return f"{code or error.status_code}: {error.message}"
