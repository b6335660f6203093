"""/v1/sign_in: exchange the one-time token of the console's link for an API key. Needs no key."""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, StringConstraints

from service.api.deps import PartsDep, require_known_query
from service.api.http.requests import JsonRequest, read_body
from service.api.projects.api_keys import key_members
from service.api.schemas.keys import NewKey
from service.operations.projects import sign_in

_MAX_BODY_BYTES = 1024  # bytes; the body is read before its sender is known


class _OpenRequest(JsonRequest):
    """A request without a key, whose body authenticates it."""

    async def body(self) -> bytes:
        """Return the whole body, which is short."""
        if not hasattr(self, "_body"):
            self._body = await read_body(self, _MAX_BODY_BYTES)
        return self._body


class _OpenRoute(APIRoute):
    def get_route_handler(self) -> Any:  # noqa: ANN401 - FastAPI's own type
        """Wrap FastAPI's handler, as its documentation shows for custom requests."""
        handle = super().get_route_handler()

        async def handle_open(request: Request) -> Response:
            return await handle(_OpenRequest(request.scope, request.receive))

        return handle_open


class SignInRequest(BaseModel):
    """The token after `#sign-in=` in the console's link."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    token: Annotated[str, StringConstraints(min_length=1, max_length=200)]


router = APIRouter(tags=["API keys"], route_class=_OpenRoute)


@router.post("/sign_in", operation_id="signIn", dependencies=[Depends(require_known_query)])
async def exchange(parts: PartsDep, body: Annotated[SignInRequest, Body()]) -> NewKey:
    """Exchange a one-time token for an API key named `console`, which expires after 12 hours.

    Every token that does not work gets the same answer: 401 `invalid_sign_in`.
    """
    async with parts.engine.begin() as conn:
        key, secret = await sign_in.exchange(conn, body.token, parts.now())
    return NewKey(**key_members(key), key=secret)
