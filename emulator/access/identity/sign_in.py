"""Entra ID's endpoints: tokens for a client secret or a federated assertion, and discovery."""

import uuid
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.access.identity.directory import TENANT, Principal, by_client, secret_fits, stranger
from emulator.access.identity.tokens import LIFETIME, lifetime, signer
from emulator.arm.front_door import base_url, fabric_of
from emulator.fabric import Fabric

EVERY_TENANT = ("common", "organizations", TENANT)


# Entra ID's number of a refusal (AADSTS...), OAuth's word for it, the text.
REFUSALS = {
    70003: ("unsupported_grant_type", "The app requested an unsupported grant type '{0}'."),
    70025: (
        "invalid_client",
        "The client '{0}'({1}) has no configured federated identity credentials. The emulator "
        "believes no token of another issuer: use a secret.",
    ),
    90002: (
        "invalid_request",
        "Tenant '{0}' not found. Check to make sure you have the correct tenant ID and are "
        "signing into the correct cloud. Check with your subscription administrator, this may "
        "happen if there are no active subscriptions for the tenant.",
    ),
    700016: (
        "unauthorized_client",
        f"Application with identifier '{{0}}' was not found in the directory '{TENANT}'. This can "
        "happen if the application has not been installed by the administrator of the tenant or "
        "consented to by any user in the tenant. You may have sent your authentication request to "
        "the wrong tenant.",
    ),
    900144: ("invalid_request", "The request body must contain the following parameter: '{0}'."),
    1002012: (
        "invalid_scope",
        "The provided value for scope {0} is not valid. Client credential flows must have a scope "
        "value with /.default suffixed to the resource identifier (application ID URI).",
    ),
    7000215: (
        "invalid_client",
        "Invalid client secret provided. Ensure the secret being sent in the request is the client "
        "secret value, not the client secret ID, for a secret added to app '{0}'.",
    ),
    7000216: (
        "invalid_client",
        "'client_assertion', 'client_secret' or 'request' is required for the 'client_credentials' "
        "grant type.",
    ),
}


class SignInRefused(Exception):
    """An AADSTS error: its number, OAuth's word for it, and the text without either."""

    def __init__(self, number: int, *values: str) -> None:
        self.number = number
        self.error, text = REFUSALS[number]
        self.status = 401 if self.error == "invalid_client" else 400
        super().__init__(text.format(*values))


async def openid_configuration(request: Request) -> Response:
    """Show the addresses of the tenant's endpoints."""
    name = request.path_params["tenant"]
    if name.lower() not in EVERY_TENANT:
        return _refused(fabric_of(request), SignInRefused(90002, name), "invalid_tenant")
    tenant = f"{base_url(request)}/{name}"
    return JSONResponse(
        {
            "issuer": f"{tenant}/v2.0",
            "authorization_endpoint": f"{tenant}/oauth2/v2.0/authorize",
            "token_endpoint": f"{tenant}/oauth2/v2.0/token",
            "device_authorization_endpoint": f"{tenant}/oauth2/v2.0/devicecode",
            "jwks_uri": f"{tenant}/discovery/v2.0/keys",
            "token_endpoint_auth_methods_supported": ["client_secret_post", "private_key_jwt"],
            "response_types_supported": ["code"],
            "subject_types_supported": ["pairwise"],
            "id_token_signing_alg_values_supported": ["RS256"],
        }
    )


async def keys(request: Request) -> Response:
    """Show the public key that verifies tokens."""
    return JSONResponse(signer(fabric_of(request)).jwks())


async def token(request: Request) -> Response:
    """Issue a token at the v2.0 endpoint, which takes a scope."""
    fabric = fabric_of(request)
    try:
        body = (await request.body()).decode()
        form = {k: v[0] for k, v in parse_qs(body, errors="strict").items()}
        principal, audience = _granted(fabric, request.path_params["tenant"], form)
    except UnicodeDecodeError:
        return _refused(fabric, SignInRefused(900144, "grant_type"))
    except SignInRefused as refusal:
        return _refused(fabric, refusal)
    extra_claims = {"xms_mirid": principal.resource_id} if principal.resource_id else {}
    issued_at, expires_at = lifetime(fabric)
    access = signer(fabric).issue(principal, audience, issued_at, expires_at, **extra_claims)
    answer: dict[str, Any] = {"token_type": "Bearer", "access_token": access}
    answer |= {"expires_in": LIFETIME, "ext_expires_in": LIFETIME}
    return JSONResponse(answer, headers={"Cache-Control": "no-store"})


def _granted(fabric: Fabric, tenant: str, form: dict[str, str]) -> tuple[Principal, str]:
    """Return the principal that asks and the audience that it asks for, or raise SignInRefused."""
    if tenant.lower() != TENANT:
        raise SignInRefused(90002, tenant)
    if (grant := form.get("grant_type", "client_credentials")) != "client_credentials":
        raise SignInRefused(70003, grant)
    if not form.get("client_id"):
        raise SignInRefused(900144, "client_id")
    return _principal(fabric, form), _audience(form)


def _principal(fabric: Fabric, form: dict[str, str]) -> Principal:
    client_id, secret = form["client_id"], form.get("client_secret", "")
    assertion = form.get("client_assertion", "")
    if not secret and not assertion:
        raise SignInRefused(7000216)
    principal = by_client(fabric.state, client_id)
    if principal is None and fabric.settings.access == "open":
        return stranger(client_id)
    if principal is None:
        raise SignInRefused(700016, client_id)
    if assertion:
        raise SignInRefused(70025, client_id, principal.name)
    if not secret_fits(fabric.state, principal, secret):
        raise SignInRefused(7000215, client_id)
    return principal


def _audience(form: dict[str, str]) -> str:
    """Return the audience of a token; "" (ARM) if none is named, which Azure refuses."""
    if "scope" not in form:
        return form.get("resource", "")
    if not (scope := form["scope"]).endswith("/.default"):
        raise SignInRefused(1002012, scope)
    return scope.removesuffix("/.default")


def _refused(fabric: Fabric, refusal: SignInRefused, error: str = "") -> Response:
    """Return a refusal as Entra ID words it."""
    trace, correlation = str(uuid.uuid4()), str(uuid.uuid4())
    at = datetime.fromtimestamp(fabric.now(), UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    body = {
        "error": error or refusal.error,
        "error_description": f"AADSTS{refusal.number}: {refusal} Trace ID: {trace} "
        f"Correlation ID: {correlation} Timestamp: {at}",
        "error_codes": [refusal.number],
        "timestamp": at,
        "trace_id": trace,
        "correlation_id": correlation,
        "error_uri": f"https://login.microsoftonline.com/error?code={refusal.number}",
    }
    return JSONResponse(body, status_code=refusal.status)
