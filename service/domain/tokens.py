"""Derive secrets that can be recomputed: no table of them, and a repeated create is identical."""

import hashlib
import hmac
import secrets

KEY_PREFIX = "rk-"


def bootstrap_token(secret: str, attempt_id: str) -> str:
    """Return the token that cloud-init gives the nodes of an attempt to register with."""
    return _derive(secret, f"bootstrap:{attempt_id}")


def node_token(secret: str, node_id: str) -> str:
    """Return the token that a node authenticates with after registration."""
    return _derive(secret, f"node:{node_id}")


def is_same(candidate: str, expected: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(candidate.encode(), expected.encode())


def new_api_key() -> str:
    """Return a fresh API key; shown once, stored only as a hash."""
    return KEY_PREFIX + secrets.token_urlsafe(32)


def new_sign_in_token() -> str:
    """Return a fresh token for one sign-in; kept only as a hash."""
    return secrets.token_urlsafe(32)


def key_digest(api_key: str) -> bytes:
    """Return the stored hash of a key. A key is 256 random bits, so a plain hash suffices."""
    return hashlib.sha256(api_key.encode()).digest()


def _derive(secret: str, purpose: str) -> str:
    return hmac.new(secret.encode(), purpose.encode(), hashlib.sha256).hexdigest()
