"""Tags, which every resource can have."""

from typing import Any

from emulator.core.errors import invalid

MAX_TAGS = 50


def tags_of(body: dict[str, Any]) -> dict[str, str]:
    """Return the tags in a body, or raise ArmError."""
    tags = body.get("tags") or {}
    if not isinstance(tags, dict) or not all(isinstance(v, str) for v in tags.values()):
        raise invalid("The tags must be an object of strings.", "InvalidTags")
    if len(tags) > MAX_TAGS:
        raise invalid(f"The number of tags on the resource exceeds {MAX_TAGS}.", "TooManyTags")
    return tags
