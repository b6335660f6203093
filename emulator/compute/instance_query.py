"""$filter of the lists of virtual machines: one scale set's, as Azure documents it."""

import re

from starlette.requests import Request

from emulator.core.errors import invalid

OF_SET = re.compile(r"'?virtualMachineScaleSet/id'?\s+eq\s+'([^']*)'", re.IGNORECASE)


def scale_set_filter(request: Request) -> str:
    """The id of the scale set to whose virtual machines a list is narrowed; empty for all."""
    text = request.query_params.get("$filter", "").strip()
    if not text:
        return ""
    if found := OF_SET.fullmatch(text):
        return found[1].lower()
    raise unsupported(text)


def unsupported(text: str) -> Exception:
    """The refusal of any other filter."""
    return invalid(f"The filter '{text[:200]}' is not supported.", "BadRequest", "$filter")
