"""Where a resource may be: the regions there are, and that it stays in the one it has."""

from emulator.core.catalog import check_location
from emulator.core.errors import elsewhere
from emulator.resources.kinds import Draft


def check_place(draft: Draft, type_: str) -> None:
    """Normalize the location of a draft, or raise ArmError."""
    given = draft.body.get("location")
    if not given and draft.old:
        given = draft.old.location
    place = check_location(given, type_)
    if draft.old and draft.old.location != place:
        raise elsewhere(draft.path.name, draft.old.location, draft.path.group, place)
    draft.body["location"] = place
