"""The text under a member of a model is its description, also where the model is extended."""

from typing import Generic, TypeVar

from pydantic import Field

from contract.described import Described, descriptions

T = TypeVar("T")


class Base(Described, Generic[T]):
    """Has members of its own."""

    first: T
    """The first."""
    silent: int = 0
    renamed: int = Field(default=0, alias="other")
    """Known by another name."""


class Extended(Base[int]):
    """Adds one."""

    given: int = Field(default=0, description="Said in its field.")
    """Not this."""


def test_descriptions_are_read_from_the_source_of_a_model_and_of_its_bases() -> None:
    texts = {
        "first": "The first.",
        "renamed": "Known by another name.",
        "given": "Said in its field.",
    }

    assert descriptions(Extended) == texts


def test_a_schema_has_the_descriptions_under_the_names_on_the_wire() -> None:
    members = Extended.model_json_schema()["properties"]

    said = {name: member.get("description") for name, member in members.items()}
    assert said == {
        "first": "The first.",
        "silent": None,
        "other": "Known by another name.",
        "given": "Said in its field.",
    }
