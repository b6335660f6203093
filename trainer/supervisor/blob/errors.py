"""What Blob Storage's refusals mean to us, whoever asked it."""

import re
from urllib.parse import parse_qs, urlsplit

_ARCHIVED = ("BlobArchived", "BlobBeingRehydrated")
_QUERY = re.compile(r"\?[^\s'\")>]+")


class BlobError(Exception):
    """Blob Storage did not do what was asked."""


class BlobUnavailableError(BlobError):
    """No answer, or one that says "later". A write may or may not have happened."""


class BlobNotFoundError(BlobError):
    """No such blob."""


class PreconditionFailedError(BlobError):
    """The blob is not as the write or read demanded. Read again."""


class AccessRefusedError(BlobError):
    """The SAS does not allow it; most often it has run out."""


class UnsupportedHeaderError(BlobError):
    """This Blob Storage does not know a header that we sent."""


def error_for_status(url: str, status: int | None, code: str) -> BlobError:
    """The error for this answer of Blob's."""
    parts = urlsplit(url)
    said = f"{parts.path}: {status} {code}"
    if code == "FeatureNotSupported":
        return UnsupportedHeaderError(said)
    if code in _ARCHIVED:
        return BlobError(f"{said}: it is as it was written, and has to be taken out of the archive")
    match status:
        case 404:
            return BlobNotFoundError(said)
        case 409 | 412:
            return PreconditionFailedError(said)
        case 401 | 403:
            ends = parse_qs(parts.query).get("se", ["its access policy is deleted"])[0]
            return AccessRefusedError(
                f"{said}: the SAS, valid until {ends}, does not allow this; "
                "a directive with fresh grants is needed"
            )
        case None | 408 | 429 | 500 | 502 | 503 | 504:
            return BlobUnavailableError(said)
        case _:
            return BlobError(said)


def redact_sas(text: str) -> str:
    """The text without the query of any URL: that is where a SAS is, and errors quote URLs."""
    return _QUERY.sub("?...", text)
