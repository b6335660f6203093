"""Sign-in: Entra ID's token endpoint, the cloud's metadata, subscriptions and tenants."""

import base64
import json
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from emulator.errors import ArmError, invalid
from emulator.fabric import Fabric

TENANT = "11111111-1111-1111-1111-111111111111"
PRINCIPAL = "22222222-2222-2222-2222-222222222222"
SUBSCRIPTION = "00000000-0000-0000-0000-000000000001"
TOKEN_SECONDS = 24 * 3600


def check_bearer(header: str, now: float) -> None:
    """Raise ArmError 401 unless the header bears a token that has not expired."""
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise ArmError(
            401,
            "AuthenticationFailed",
            "Authentication failed. The 'Authorization' header is missing.",
        )
    if _expiry(token) <= now:
        raise ArmError(401, "ExpiredAuthenticationToken", "The access token has expired.")


async def token(request: Request) -> Response:
    """Client credentials: any secret or assertion will do, but there must be one."""
    form = {k: v[0] for k, v in parse_qs((await request.body()).decode()).items()}
    if not (form.get("client_secret") or form.get("client_assertion")):
        error = {"error": "invalid_client", "error_description": "AADSTS7000216: no client secret."}
        return JSONResponse(error, status_code=401)
    audience = form.get("scope", "").removesuffix("/.default")
    fabric: Fabric = request.app.state.fabric
    return JSONResponse(
        {
            "token_type": "Bearer",
            "expires_in": TOKEN_SECONDS,
            "ext_expires_in": TOKEN_SECONDS,
            "access_token": _issue(audience, form.get("client_id", ""), fabric.now()),
        }
    )


async def openid_configuration(request: Request) -> Response:
    """Where the tenant's endpoints are."""
    tenant = f"{_base(request)}/{request.path_params['tenant']}"
    return JSONResponse(
        {
            "issuer": f"{tenant}/v2.0",
            "authorization_endpoint": f"{tenant}/oauth2/v2.0/authorize",
            "token_endpoint": f"{tenant}/oauth2/v2.0/token",
            "device_authorization_endpoint": f"{tenant}/oauth2/v2.0/devicecode",
            "jwks_uri": f"{tenant}/discovery/v2.0/keys",
            "response_types_supported": ["code"],
            "subject_types_supported": ["pairwise"],
            "id_token_signing_alg_values_supported": ["RS256"],
        }
    )


async def endpoints(request: Request) -> Response:
    """The cloud's endpoints, as `az cloud register` reads them."""
    here = _base(request)
    return JSONResponse(
        {
            "name": "RekindleEmulator",
            "resourceManager": here,
            "portal": here,
            "authentication": {
                "loginEndpoint": here,
                "audiences": [here],
                "tenant": "common",
                "identityProvider": "AAD",
            },
            "graph": here,
            "graphAudience": here,
            "microsoftGraphResourceId": here,
            "gallery": here,
            "batch": here,
            "media": here,
            "vmImageAliasDoc": f"{here}/aliases.json",
            "suffixes": {"storage": "localhost", "keyVaultDns": "localhost"},
        }
    )


async def subscriptions(_: Request) -> Response:
    """The one subscription."""
    return JSONResponse({"value": [_subscription(SUBSCRIPTION)]})


async def subscription(request: Request) -> Response:
    """Any subscription: none is refused."""
    return JSONResponse(_subscription(request.path_params["subscription"]))


async def tenants(_: Request) -> Response:
    """The one tenant."""
    return JSONResponse({"value": [{"id": f"/tenants/{TENANT}", "tenantId": TENANT}]})


def _subscription(name: str) -> dict[str, Any]:
    return {
        "id": f"/subscriptions/{name}",
        "subscriptionId": name,
        "tenantId": TENANT,
        "displayName": "Azure on localhost",
        "state": "Enabled",
    }


def _issue(audience: str, client: str, now: float) -> str:
    """A token in the shape of a JWT. Nobody checks the signature."""
    claims = {
        "aud": audience,
        "iss": f"https://sts.windows.net/{TENANT}/",
        "iat": int(now),
        "nbf": int(now),
        "exp": int(now) + TOKEN_SECONDS,
        "appid": client,
        "oid": PRINCIPAL,
        "sub": PRINCIPAL,
        "tid": TENANT,
        "idtyp": "app",
    }
    return ".".join((_encode({"alg": "none", "typ": "JWT"}), _encode(claims), "unsigned"))


def _encode(part: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


def _expiry(token: str) -> float:
    """The time in the token's claims; a token that is no JWT is refused."""
    try:
        claims = token.split(".")[1]
        return float(json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"])
    except (IndexError, KeyError, TypeError, ValueError):
        raise ArmError(
            401, "InvalidAuthenticationToken", "The access token is invalid: it is no JWT."
        ) from None


def _base(request: Request) -> str:
    if not request.url.netloc:
        raise invalid("A Host header is needed.")
    return f"{request.url.scheme}://{request.url.netloc}"
