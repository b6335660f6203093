"""Where a resource may be: the regions there are, and that it stays in the one it has."""

from emulator.catalog import catalog, region_name
from emulator.errors import elsewhere
from emulator.resources.kinds import Draft


def check_place(draft: Draft, type_: str) -> None:
    """Normalize the location of a draft, or raise ArmError."""
    given = draft.body.get("location")
    if not given and draft.old:
        given = draft.old.location
    if not given:
        message = "The location property is required for this definition."
        raise draft.refuse("LocationRequired", message)
    place = region_name(given)
    if place not in catalog().locations:
        raise draft.refuse(
            "LocationNotAvailableForResourceType",
            f"The provided location '{place}' is not available for resource type '{type_}'. List "
            "of available regions for the resource type is "
            f"'{','.join(sorted(catalog().locations))}'.",
        )
    if draft.old and draft.old.location != place:
        raise elsewhere(draft.path.name, draft.old.location, draft.path.group, place)
    draft.body["location"] = place
