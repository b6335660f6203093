"""Access tokens: JWTs that this emulator signs with a key of its own, and believes if it did."""

import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from emulator.access.identity.directory import TENANT, Principal
from emulator.core.errors import ArmError
from emulator.core.private_files import write_private
from emulator.fabric import Fabric

LIFETIME = 24 * 3600  # real seconds
ISSUER = "https://sts.windows.net/{}/"
AZURE = ("https://management.core.windows.net", "https://management.azure.com")
LOOPBACK = ("localhost", "127.0.0.1")
_LAX = {f"verify_{claim}": False for claim in ("aud", "exp", "iat", "iss", "nbf", "sub")}


class Signer:
    """The key of one emulator, kept in its folder: a restart does not sign anybody out."""

    def __init__(self, folder: Path) -> None:
        pem = _load_or_create(folder / "access" / "signing.pem")
        # Its primes were tested when it was drawn.
        key = serialization.load_pem_private_key(pem, None, unsafe_skip_rsa_key_validation=True)
        assert isinstance(key, rsa.RSAPrivateKey)
        self._key, self._public = key, key.public_key()
        self._pepper = hashlib.sha256(pem).digest()
        public = self._public.public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        self.key_id = base64.urlsafe_b64encode(hashlib.sha1(public).digest()).decode().rstrip("=")  # noqa: S324 - a name, as Entra's x5t is
        self.read = lru_cache(1024)(self._read)

    def issue(
        self,
        principal: Principal,
        audience: str,
        issued_at: float,
        expires_at: float,
        **extra_claims: str,
    ) -> str:
        """Issue a token for an audience."""
        claims: dict[str, Any] = {
            "aud": audience,
            "iss": ISSUER.format(TENANT),
            "iat": int(issued_at),
            "nbf": int(issued_at),
            "exp": int(expires_at),
            "appid": principal.client_id,
            "appidacr": "1",
            "idtyp": "app",
            "oid": principal.object_id,
            "sub": principal.object_id,
            "tid": TENANT,
            "ver": "1.0",
        }
        return jwt.encode(claims | extra_claims, self._key, "RS256", {"kid": self.key_id})

    def jwks(self) -> dict[str, Any]:
        """Return the public key as the discovery endpoint shows it."""
        key = json.loads(RSAAlgorithm.to_jwk(self._public))
        members = {k: key[k] for k in ("kty", "n", "e")}
        return {"keys": [members | {"use": "sig", "kid": self.key_id, "x5t": self.key_id}]}

    def identity_header(self, client_id: str) -> str:
        """Return the secret that a principal's App Service host would have in IDENTITY_HEADER."""
        return hmac.new(self._pepper, client_id.lower().encode(), "sha256").hexdigest()

    def _read(self, token: str) -> dict[str, Any]:
        """Return the claims if this key signed them, or raise jwt.InvalidTokenError."""
        return jwt.decode(token, self._public, ["RS256"], options=_LAX)  # type: ignore[arg-type] # a TypedDict of bools


def signer(fabric: Fabric) -> Signer:
    """Return the signer of this emulator."""
    return _signer(fabric.settings.folder)


def lifetime(fabric: Fabric) -> tuple[int, int]:
    """When a token begins and ends, in the emulator's time.

    Clients count its life by their own clocks, however fast time flies here.
    """
    issued_at = int(fabric.now())
    return issued_at, issued_at + int(LIFETIME * max(1.0, fabric.settings.speed))


def check(fabric: Fabric, header: str, host: str) -> dict[str, Any]:
    """Return the claims of a bearer token valid for ARM at ``host``, or raise ArmError 401."""
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise ArmError(
            401,
            "AuthenticationFailed",
            "Authentication failed. The 'Authorization' header is missing.",
        )
    try:
        claims = signer(fabric).read(token)
    except jwt.InvalidTokenError:
        raise _forged(token) from None
    if claims["exp"] <= fabric.now():
        raise ArmError(
            401,
            "ExpiredAuthenticationToken",
            f"The access token expiry UTC time '{_american(claims['exp'])}' is earlier than "
            f"current UTC time '{_american(fabric.now())}'.",
        )
    _check_audience(str(claims["aud"]), host)
    return claims


@lru_cache(64)
def _signer(folder: Path) -> Signer:
    return Signer(folder)


def _load_or_create(file: Path) -> bytes:
    if file.exists():
        return file.read_bytes()
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_private(file, _drawn())
    return file.read_bytes()


@cache
def _drawn() -> bytes:
    """Generate a key once per process: that takes a while, and emulators in tests share it."""
    return rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _forged(token: str) -> ArmError:
    """Why a token that this emulator did not sign is refused."""
    try:
        claims = jwt.decode(token, options={"verify_signature": False})
    except jwt.InvalidTokenError:
        claims = {}
    wrong = str(claims.get("tid", TENANT))
    if wrong.lower() == TENANT:
        return ArmError(401, "InvalidAuthenticationToken", "The access token is invalid.")
    return ArmError(
        401,
        "InvalidAuthenticationTokenTenant",
        f"The access token is from the wrong issuer '{ISSUER.format(wrong)}'. It must match the "
        f"tenant '{ISSUER.format(TENANT)}' associated with this subscription. Please use the "
        f"authority (URL) 'https://login.windows.net/{TENANT}' to get the token. Note, if the "
        "subscription is transferred to another tenant there is no impact to the services, but "
        "information about new tenant could take time to propagate (up to an hour). If you just "
        "transferred your subscription and see this error message, please try back later.",
    )


def _check_audience(audience: str, host: str) -> None:
    """Azure's names for ARM will do, and this machine's, whatever port leads here."""
    plain = audience.removesuffix("/")
    if plain in AZURE or not plain or _host_of(plain) in (*LOOPBACK, host):
        return
    allowed = ",".join(f"'{name}/','{name}'" for name in AZURE)
    raise ArmError(
        401,
        "InvalidAuthenticationTokenAudience",
        f"The access token has been obtained for wrong audience or resource '{audience}'. It "
        f"should exactly match with one of the allowed audiences {allowed}.",
    )


def _host_of(audience: str) -> str | None:
    try:
        return urlsplit(audience).hostname
    except ValueError:
        return None


def _american(at: float) -> str:
    moment = datetime.fromtimestamp(at, UTC)
    hour = moment.hour % 12 or 12
    half = "AM" if moment.hour < 12 else "PM"
    day = f"{moment.month}/{moment.day}/{moment.year}"
    return f"{day} {hour}:{moment.minute:02}:{moment.second:02} {half}"
