"""Entra ID's endpoints: tokens for a client secret or a federated assertion, and discovery."""

import uuid
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.access.identity.directory import TENANT, Principal, by_client, secret_fits, stranger
from emulator.access.identity.refusals import SignInRefused
from emulator.access.identity.tokens import LIFETIME, lifetime, signer
from emulator.arm.front_door import base_url, fabric_of
from emulator.fabric import Fabric

EVERY_TENANT = ("common", "organizations", TENANT)


async def token(request: Request) -> Response:
    """Issue a token at the v2.0 endpoint, which takes a scope."""
    return await _token(request)


async def openid_configuration(request: Request) -> Response:
    """Where the tenant's endpoints are."""
    name = request.path_params["tenant"]
    if name.lower() not in EVERY_TENANT:
        return _refused(fabric_of(request), _no_tenant(name, "invalid_tenant"))
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


async def _token(request: Request) -> Response:
    fabric = fabric_of(request)
    try:
        body = (await request.body()).decode()
        form = {k: v[0] for k, v in parse_qs(body, errors="strict").items()}
        principal, audience = _granted(fabric, request.path_params["tenant"], form)
    except UnicodeDecodeError:
        return _refused(fabric, _missing("grant_type"))
    except SignInRefused as refusal:
        return _refused(fabric, refusal)
    more = {"xms_mirid": principal.resource_id} if principal.resource_id else {}
    begins, ends = lifetime(fabric)
    access = signer(fabric).issue(principal, audience, begins, ends, **more)
    answer: dict[str, Any] = {"token_type": "Bearer", "access_token": access}
    answer |= {"expires_in": LIFETIME, "ext_expires_in": LIFETIME}
    return JSONResponse(answer, headers={"Cache-Control": "no-store"})


def _granted(fabric: Fabric, tenant: str, form: dict[str, str]) -> tuple[Principal, str]:
    """Who asks, and for which audience, or SignInRefused."""
    if tenant.lower() != TENANT:
        raise _no_tenant(tenant, "invalid_request")
    if (grant := form.get("grant_type", "client_credentials")) != "client_credentials":
        text = f"The app requested an unsupported grant type '{grant}'."
        raise SignInRefused(70003, "unsupported_grant_type", text)
    if not form.get("client_id"):
        raise _missing("client_id")
    return _known(fabric, form), _audience(form)


def _known(fabric: Fabric, form: dict[str, str]) -> Principal:
    secret, assertion = form.get("client_secret", ""), form.get("client_assertion", "")
    if not secret and not assertion:
        text = (
            "'client_assertion', 'client_secret' or 'request' is required for the "
            "'client_credentials' grant type."
        )
        raise SignInRefused(7000216, "invalid_client", text, 401)
    client_id = form["client_id"]
    principal = by_client(fabric.state, client_id)
    if principal is None and fabric.settings.access == "open":
        return stranger(client_id)
    if principal is None:
        text = (
            f"Application with identifier '{client_id}' was not found in the directory "
            f"'{TENANT}'. This can happen if the application has not been installed by the "
            "administrator of the tenant or consented to by any user in the tenant. You may "
            "have sent your authentication request to the wrong tenant."
        )
        raise SignInRefused(700016, "unauthorized_client", text)
    if assertion:
        raise SignInRefused(
            70025,
            "invalid_client",
            f"The client '{client_id}'({principal.name}) has no configured federated identity "
            "credentials. The emulator believes no token of another issuer: use a secret.",
            401,
        )
    if not secret_fits(fabric.state, principal, secret):
        text = (
            "Invalid client secret provided. Ensure the secret being sent in the request is the "
            "client secret value, not the client secret ID, for a secret added to app "
            f"'{client_id}'."
        )
        raise SignInRefused(7000215, "invalid_client", text, 401)
    return principal


def _audience(form: dict[str, str]) -> str:
    """Return the audience of a token; "" (ARM) if none is named, which Azure refuses."""
    if "scope" not in form:
        return form.get("resource", "")
    if not (scope := form["scope"]).endswith("/.default"):
        text = (
            f"The provided value for scope {scope} is not valid. Client credential flows must "
            "have a scope value with /.default suffixed to the resource identifier (application "
            "ID URI)."
        )
        raise SignInRefused(1002012, "invalid_scope", text)
    return scope.removesuffix("/.default")


def _no_tenant(name: str, error: str) -> SignInRefused:
    text = (
        f"Tenant '{name}' not found. Check to make sure you have the correct tenant ID and are "
        "signing into the correct cloud. Check with your subscription administrator, this may "
        "happen if there are no active subscriptions for the tenant."
    )
    return SignInRefused(90002, error, text)


def _missing(name: str) -> SignInRefused:
    text = f"The request body must contain the following parameter: '{name}'."
    return SignInRefused(900144, "invalid_request", text)


def _refused(fabric: Fabric, refusal: SignInRefused) -> Response:
    """Return a refusal as Entra ID words it."""
    trace, correlation = str(uuid.uuid4()), str(uuid.uuid4())
    at = datetime.fromtimestamp(fabric.now(), UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    body = {
        "error": refusal.error,
        "error_description": f"AADSTS{refusal.number}: {refusal} Trace ID: {trace} "
        f"Correlation ID: {correlation} Timestamp: {at}",
        "error_codes": [refusal.number],
        "timestamp": at,
        "trace_id": trace,
        "correlation_id": correlation,
        "error_uri": f"https://login.microsoftonline.com/error?code={refusal.number}",
    }
    return JSONResponse(body, status_code=refusal.status)
