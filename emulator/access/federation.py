"""Workload identity: a token of somebody else's, believed as a federated credential says."""

from collections.abc import Callable
from typing import Any

import jwt

from emulator.access.directory import Principal
from emulator.access.refusals import SignInRefused
from emulator.state import State

CREDENTIAL = "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials"
_ADVICE = (
    "Check your federated identity credential Subject, Audience and Issuer against the presented "
    "assertion. https://learn.microsoft.com/entra/workload-id/workload-identity-federation"
)


def check(state: State, principal: Principal, assertion: str) -> None:
    """Raise SignInRefused unless a credential of the identity names issuer, subject and audience.

    The issuer's signature is not looked at: its keys are on a network that is not there.
    """
    try:
        claims = jwt.decode(assertion, options={"verify_signature": False})
    except jwt.InvalidTokenError:
        raise SignInRefused(
            50027, "invalid_client", "JWT token is invalid or malformed.", 401
        ) from None
    left = _credentials(state, principal)
    if not left:
        raise SignInRefused(
            70025,
            "invalid_client",
            f"The client '{principal.client_id}'({principal.name}) has no configured federated "
            "identity credentials.",
            401,
        )
    audiences = claims.get("aud")
    named = audiences if isinstance(audiences, list) else [audiences]
    # Issuer first: Entra ID too says which of the three was the first that no credential has.
    left = _narrowed(left, lambda c: c["issuer"] == claims.get("iss"), 700211, "issuer", claims)
    left = _narrowed(left, lambda c: c["subject"] == claims.get("sub"), 700213, "subject", claims)
    _narrowed(left, lambda c: bool({*c["audiences"]} & {*named}), 700212, "audience", claims)


def _credentials(state: State, principal: Principal) -> list[dict[str, Any]]:
    inside = f"{principal.resource_id}/".lower()
    return [
        r.body["properties"]
        for r in state.resources.values()
        if principal.resource_id and r.key.startswith(inside) and r.type == CREDENTIAL
    ]


def _narrowed(
    credentials: list[dict[str, Any]],
    fits: Callable[[dict[str, Any]], bool],
    number: int,
    what: str,
    claims: dict[str, Any],
) -> list[dict[str, Any]]:
    if left := [c for c in credentials if fits(c)]:
        return left
    shown = claims.get({"issuer": "iss", "subject": "sub", "audience": "aud"}[what])
    raise SignInRefused(
        number,
        "invalid_client",
        f"No matching federated identity record found for presented assertion {what} '{shown}'. "
        f"{_ADVICE}",
        401,
    )
