"""Secrets that can be computed again: no table of them, and a create can be repeated as it was."""

import hashlib
import hmac
import secrets

KEY_PREFIX = "rk-"


def bootstrap_token(secret: str, attempt_id: str) -> str:
    """What cloud-init hands to the nodes of an attempt, to register with."""
    return _derive(secret, f"bootstrap:{attempt_id}")


def node_token(secret: str, node_id: str) -> str:
    """What a registered node shows from then on."""
    return _derive(secret, f"node:{node_id}")


def same(given: str, wanted: str) -> bool:
    """Compare without telling by the time it takes."""
    return hmac.compare_digest(given.encode(), wanted.encode())


def new_api_key() -> str:
    """A fresh key for a user; shown once, kept only as a hash."""
    return KEY_PREFIX + secrets.token_urlsafe(32)


def new_sign_in_token() -> str:
    """Return a fresh token for one sign-in; kept only as a hash."""
    return secrets.token_urlsafe(32)


def digest(api_key: str) -> bytes:
    """What is kept of a key. It is 256 random bits, so a plain hash is enough."""
    return hashlib.sha256(api_key.encode()).digest()


def _derive(secret: str, purpose: str) -> str:
    return hmac.new(secret.encode(), purpose.encode(), hashlib.sha256).hexdigest()
