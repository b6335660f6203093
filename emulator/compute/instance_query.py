"""$filter of the lists of virtual machines: one scale set's, as Azure documents it."""

import re

from starlette.requests import Request

from emulator.core.errors import invalid

OF_SET = re.compile(r"'?virtualMachineScaleSet/id'?\s+eq\s+'([^']*)'", re.IGNORECASE)


def scale_set_filter(request: Request) -> str:
    """Return the id of the scale set that $filter names; empty for all scale sets."""
    text = request.query_params.get("$filter", "").strip()
    if not text:
        return ""
    if found := OF_SET.fullmatch(text):
        return found[1].lower()
    raise unsupported(text)


def unsupported(text: str) -> Exception:
    """Return the error for an unsupported filter."""
    return invalid(f"The filter '{text[:200]}' is not supported.", "BadRequest", "$filter")
