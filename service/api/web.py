"""The web console: its page for every address of its router, and the files that the page loads."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import PlainTextResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import Scope

FOLDER: Final = Path(__file__).resolve().parents[2] / "web" / "dist"
_POLICY: Final = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
_IMMUTABLE: Final = "public, max-age=31536000, immutable"  # file names hold a hash of the content
_REVALIDATED: Final = "no-cache"  # kept, and revalidated each time
# First parts of the router's addresses. The API refuses any other unknown address.
PAGES: Final = ("jobs", "new", "compare", "models", "fleet", "costs", "settings", "system")
_FILES: Final = ("icon.svg", "report.html")
_NOT_BUILT: Final = (
    "The web console is not built. Run `npm ci && npm run build` in the folder web/, "
    "then load this page again. The API is at /v1, and /docs describes it.\n"
)


class _Files(StaticFiles):
    """Files that a browser may keep, of the console's own origin."""

    def __init__(self, folder: Path, cache_control: str) -> None:
        super().__init__(directory=folder, check_dir=False)
        self._cache_control = cache_control

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return the file, or raise HTTPException."""
        answer = await super().get_response(path, scope)
        answer.headers["cache-control"] = self._cache_control
        answer.headers["content-security-policy"] = _POLICY
        return answer


def install(app: FastAPI, folder: Path | None) -> None:
    """Serve the console from the folder; without one, `/` says how to build it."""
    files = _Files(folder or FOLDER, _REVALIDATED)

    async def page(request: Request) -> Response:
        if folder is not None:
            try:
                return await files.get_response("index.html", request.scope)
            except HTTPException:
                pass
        return PlainTextResponse(_NOT_BUILT, status_code=404)

    async def file(request: Request) -> Response:
        return await files.get_response(request.url.path.lstrip("/"), request.scope)

    for path in _pages():
        app.add_api_route(path, page, include_in_schema=False)
    if folder is not None:
        assets = _Files(folder / "assets", _IMMUTABLE)
        app.mount("/assets", GZipMiddleware(assets))
        for name in _FILES:
            app.add_api_route(f"/{name}", file, include_in_schema=False)


def _pages() -> Iterator[str]:
    yield "/"
    for name in PAGES:
        yield f"/{name}"
        yield f"/{name}/{{rest:path}}"
