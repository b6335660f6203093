"""Sign-in: whose token is given out, and which one is believed."""

from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest

from tests.clock import Clock
from tests.emulated.inside import HERE, Inside, emulator_inside
from tests.emulated.process import TENANT

TOKEN = f"/{TENANT}/oauth2/v2.0/token"
ARM = "https://management.azure.com/.default"
OTHER = "99999999-9999-9999-9999-999999999999"


async def sign_in(inside: Inside, path: str = TOKEN, **form: str) -> httpx.Response:
    """Ask for a token."""
    credentials = {"grant_type": "client_credentials", "client_id": "app", "client_secret": "right"}
    return await inside.arm.post(path, data=credentials | {"scope": ARM} | form)


async def register(inside: Inside, client_id: str = "app", secret: str = "right") -> Any:  # noqa: ANN401 - JSON
    """Register a principal."""
    body = {"client_id": client_id, "secret": secret, "name": "App"}
    return (await inside.metadata.post("/_emulator/principals", json=body)).json()


async def get_groups(inside: Inside, token: str) -> httpx.Response:
    """Ask ARM something with a token."""
    headers = {"Authorization": f"Bearer {token}"}
    return await inside.arm.get(f"{HERE}/resourceGroups", headers=headers)


async def test_a_stranger_signs_in_with_any_secret_and_a_member_with_his_own(
    inside: Inside,
) -> None:
    before = await sign_in(inside, client_secret="anything")
    registered = await register(inside)
    right, wrong = await sign_in(inside), await sign_in(inside, client_secret="wrong")

    assert (before.status_code, right.status_code, wrong.status_code) == (200, 200, 401)
    assert wrong.json()["error"] == "invalid_client"
    assert wrong.json()["error_codes"] == [7000215]
    assert wrong.json()["error_description"].startswith(
        "AADSTS7000215: Invalid client secret provided. Ensure the secret being sent in the "
        "request is the client secret value, not the client secret ID, for a secret added to app "
        "'app'."
    )
    claims = jwt.decode(right.json()["access_token"], options={"verify_signature": False})
    assert (claims["appid"], claims["oid"], claims["tid"]) == (
        "app",
        registered["object_id"],
        TENANT,
    )
    assert claims["aud"] == "https://management.azure.com"


@pytest.mark.parametrize(
    ("form", "number"),
    [
        ({"client_secret": ""}, 7000216),
        ({"client_id": ""}, 900144),
        ({"grant_type": "password"}, 70003),
        ({"scope": "https://management.azure.com"}, 1002012),
    ],
)
async def test_a_form_that_lacks_something_is_refused(
    inside: Inside, form: dict[str, str], number: int
) -> None:
    refused = await sign_in(inside, **form)

    assert refused.status_code in (400, 401)
    assert refused.json()["error_codes"] == [number]


async def test_there_is_only_one_tenant(inside: Inside) -> None:
    token = await sign_in(inside, f"/{OTHER}/oauth2/v2.0/token")
    discovery = await inside.arm.get(f"/{OTHER}/v2.0/.well-known/openid-configuration")

    assert token.json()["error_description"].startswith(f"AADSTS90002: Tenant '{OTHER}' not found.")
    assert (token.status_code, token.json()["error"]) == (400, "invalid_request")
    assert (discovery.status_code, discovery.json()["error"]) == (400, "invalid_tenant")


async def test_anybody_can_check_a_token_with_the_published_key(inside: Inside) -> None:
    token = (await sign_in(inside)).json()["access_token"]
    discovery = await inside.arm.get(f"/{TENANT}/v2.0/.well-known/openid-configuration")
    (key,) = (await inside.arm.get(discovery.json()["jwks_uri"])).json()["keys"]

    lax = {"verify_exp": False, "verify_nbf": False, "verify_iat": False, "verify_aud": False}
    claims = jwt.decode(token, jwt.PyJWK(key, "RS256"), ["RS256"], options=lax)  # type: ignore[arg-type] # a TypedDict
    assert claims["iss"] == f"https://sts.windows.net/{TENANT}/"
    assert jwt.get_unverified_header(token)["kid"] == key["kid"]


async def test_a_token_that_somebody_else_signed_is_refused(inside: Inside) -> None:
    token = (await sign_in(inside)).json()["access_token"]
    claims = jwt.decode(token, options={"verify_signature": False})
    forged = await get_groups(inside, jwt.encode(claims, "a key that is long enough for everybody"))
    unsigned = await get_groups(inside, jwt.encode(claims, "", "none"))
    elsewhere = await get_groups(inside, jwt.encode(claims | {"tid": OTHER}, "", "none"))
    garbage = await get_groups(inside, "garbage")

    codes = [r.json()["error"]["code"] for r in (forged, unsigned, elsewhere, garbage)]
    assert [r.status_code for r in (forged, unsigned, elsewhere, garbage)] == [401] * 4
    assert codes == [
        "InvalidAuthenticationToken",
        "InvalidAuthenticationToken",
        "InvalidAuthenticationTokenTenant",
        "InvalidAuthenticationToken",
    ]
    assert f"from the wrong issuer 'https://sts.windows.net/{OTHER}/'" in elsewhere.text


async def test_a_token_is_good_for_a_day_and_says_when_it_was_not(inside: Inside) -> None:
    token = (await sign_in(inside)).json()["access_token"]
    inside.clock.advance(hours=23, minutes=59)
    response = await get_groups(inside, token)
    inside.clock.advance(minutes=2)
    stale = await get_groups(inside, token)

    assert (response.status_code, stale.status_code) == (200, 401)
    assert stale.json()["error"] == {
        "code": "ExpiredAuthenticationToken",
        "message": "The access token expiry UTC time '11/21/2026 12:00:00 PM' is earlier than "
        "current UTC time '11/21/2026 12:01:00 PM'.",
    }


async def test_a_token_outlives_hours_that_fly(tmp_path: Path) -> None:
    clock = Clock()
    async with emulator_inside(tmp_path, clock, speed=60.0) as inside:
        token = (await sign_in(inside)).json()
        clock.advance(hours=23)
        response = await get_groups(inside, token["access_token"])
        clock.advance(hours=2)
        stale = await get_groups(inside, token["access_token"])

    assert token["expires_in"] == 24 * 3600
    assert (response.status_code, stale.status_code) == (200, 401)


async def test_a_token_for_storage_opens_nothing_here(inside: Inside) -> None:
    token = (await sign_in(inside, scope="https://storage.azure.com/.default")).json()
    refused = await get_groups(inside, token["access_token"])
    odd = (await sign_in(inside, scope="http://[/.default")).json()

    assert (await get_groups(inside, odd["access_token"])).status_code == 401
    assert refused.json()["error"]["code"] == "InvalidAuthenticationTokenAudience"
    assert "wrong audience or resource 'https://storage.azure.com'" in refused.text


async def test_a_restart_signs_nobody_out(tmp_path: Path) -> None:
    clock = Clock()
    async with emulator_inside(tmp_path, clock) as first:
        await register(first)
        token = (await sign_in(first)).json()["access_token"]
    async with emulator_inside(tmp_path, clock) as second:
        assert (await get_groups(second, token)).status_code == 200
        assert (await sign_in(second, client_secret="wrong")).status_code == 401
