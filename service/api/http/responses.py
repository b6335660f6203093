"""Answers that are not JSON, as the API document describes them."""

from typing import Any, Final
from urllib.parse import quote

_BINARY = {"schema": {"type": "string", "format": "binary"}}
BYTES: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The bytes.", "content": {"application/octet-stream": _BINARY}}
}
PART: Final[dict[int | str, dict[str, Any]]] = BYTES | {
    206: {"description": "The rest.", "content": {"application/octet-stream": _BINARY}}
}
TEXT: Final[dict[str, Any]] = {"text/plain": {"schema": {"type": "string"}}}


def as_download(name: str) -> dict[str, str]:
    """Return the header that makes a browser save the answer under this name (RFC 6266)."""
    return {"content-disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"}
