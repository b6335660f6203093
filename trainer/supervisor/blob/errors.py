"""Errors of Blob Storage."""

import re
from urllib.parse import parse_qs, urlsplit

_ARCHIVED = ("BlobArchived", "BlobBeingRehydrated")
_QUERY = re.compile(r"\?[^\s'\")>]+")


class BlobError(Exception):
    """A request to Blob Storage failed."""


class BlobUnavailableError(BlobError):
    """No answer, or a temporary error. A write may or may not have happened."""


class BlobNotFoundError(BlobError):
    """The blob does not exist."""


class PreconditionFailedError(BlobError):
    """The blob is not in the required state. Read it again."""


class AccessRefusedError(BlobError):
    """The SAS does not allow the request; usually it has expired."""


class UnsupportedHeaderError(BlobError):
    """This Blob Storage does not support a header that we sent."""


def error_for_status(url: str, status: int | None, code: str) -> BlobError:
    """Return the error for an answer of Blob Storage."""
    parts = urlsplit(url)
    message = f"{parts.path}: {status} {code}"
    if code == "FeatureNotSupported":
        return UnsupportedHeaderError(message)
    if code in _ARCHIVED:
        return BlobError(
            f"{message}: it is as it was written, and has to be taken out of the archive"
        )
    match status:
        case 404:
            return BlobNotFoundError(message)
        case 409 | 412:
            return PreconditionFailedError(message)
        case 401 | 403:
            ends = parse_qs(parts.query).get("se", ["its access policy is deleted"])[0]
            return AccessRefusedError(
                f"{message}: the SAS, valid until {ends}, does not allow this; "
                "a directive with fresh grants is needed"
            )
        case None | 408 | 429 | 500 | 502 | 503 | 504:
            return BlobUnavailableError(message)
        case _:
            return BlobError(message)


def redact_sas(text: str) -> str:
    """Remove the queries of all URLs from a text: they hold the SAS, and errors quote URLs."""
    return _QUERY.sub("?...", text)
