"""Security headers of every answer: no caching, sniffing or scripts, and TLS only."""

from collections.abc import Mapping
from typing import Final

from starlette.types import Scope

ASSETS: Final = "/docs/assets"  # public, so they may be cached
_ALWAYS = {
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
}
_HSTS = {"strict-transport-security": "max-age=31536000"}  # a year


def safe_headers(scope: Scope) -> Mapping[str, str]:
    """Return the headers of an answer that does not set them itself."""
    caching = {} if scope["path"].startswith(f"{ASSETS}/") else {"cache-control": "no-store"}
    # uvicorn takes the scheme from a proxy that FORWARDED_ALLOW_IPS names.
    return _ALWAYS | caching | (_HSTS if scope["scheme"] == "https" else {})
