"""Hints for unknown URLs: what to use instead, and which methods a URL takes."""

import re

from fastapi import Request
from starlette.routing import Match

_SERVE = (
    "Rekindle trains models and does not serve them: download the model with GET "
    "/v1/fine_tuning/jobs/{id}/model and serve it, for example with vLLM."
)
_HINTS = (
    (
        r"/v1/(deployments/[^/]+/)?(chat/completions|completions|responses|embeddings|audio|images)\b",
        _SERVE,
    ),
    (r"/v1/evals\b", "Give the job a validation_file: its losses are in .../{id}/metrics."),
    (r"/v1/moderations\b", "Rekindle has no moderation model. Check the data before the upload."),
    (r"/v1/fine_tuning/checkpoints/.+/permissions", "A checkpoint belongs to its job's project."),
    (r"/v1/(fine-tunes|fine_tunes)\b", "Use /v1/fine_tuning/jobs."),
    (r"/v1/(assistants|threads|vector_stores|batches|realtime|conversations)\b", _SERVE),
    (r"/v1/v1(/|$)", "The path has /v1 twice: set the base URL to the one that ends in /v1."),
    (r"/(files|fine_tuning|models|uploads)\b", "Paths begin with /v1: set the base URL to .../v1."),
)
_DEFAULT_HINT = "See /docs for all URLs."
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")


def hint_for(request: Request) -> str:
    """Return a sentence that says what to use instead."""
    hints = (hint for pattern, hint in _HINTS if re.match(pattern, request.url.path))
    return next(hints, _DEFAULT_HINT)


def allowed_methods(request: Request) -> list[str]:
    """Return the methods that the request's path takes."""

    def takes(method: str) -> bool:
        scope = dict(request.scope) | {"method": "GET" if method == "HEAD" else method}
        return any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)

    return [method for method in _METHODS if takes(method)]
