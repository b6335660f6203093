"""`rekindle presets`: recipes with their sources, and the requests that they stand for."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rekindle.cli import formats
from rekindle.cli.command import Cli
from rekindle.cli.errors import CliError, ExitCode
from rekindle.cli.tables import new_table

if TYPE_CHECKING:
    from rich.console import RenderableType

Json = dict[str, Any]
FILE = "presets.toml"
_METHOD_MEMBERS = ("hyperparameters", "method")

Name = Annotated[
    str | None,
    typer.Argument(metavar="[NAME]", help="Preset to show with every value and its source."),
]


@dataclass(frozen=True, kw_only=True)
class PresetValue:
    """One member that a preset sets, with its source."""

    member: str  # as presets.toml calls it
    value: object
    source: str


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A recipe for one model and one method."""

    name: str
    about: str
    model: str
    method: str
    values: tuple[PresetValue, ...]
    adapter: str = ""  # lora, qlora; empty: all weights

    def body(self) -> Json:
        """Return the request's members that the preset sets."""
        options: Json = {}
        training: Json = {"adapter": {"type": self.adapter}} if self.adapter else {}
        for value in self.values:
            kind, _, member = value.member.partition(".")
            within = options if kind in _METHOD_MEMBERS else training
            if kind in ("hyperparameters", "adapter"):
                within = within.setdefault(kind, {})
            within[member] = value.value
        method = {"type": self.method, self.method: options}
        return {"model": self.model, "method": method, "training": training}

    def as_dict(self) -> Json:
        """Return the preset as JSON output."""
        summary = {"name": self.name, "about": self.about, "model": self.model}
        values = [vars(value) for value in self.values]
        return summary | {"method": self.method, "values": values, "request": self.body()}


def list_presets(cli: Cli, name: Name = None) -> None:
    """List presets for `rekindle submit --preset`, or show one with its sources."""
    if name is not None:
        preset = find_preset(name)
        cli.print_result(preset.as_dict(), lambda: _preset_lines(preset))
        return
    all_presets = list(load_presets().values())
    cli.print_result(
        {"object": "list", "data": [p.as_dict() for p in all_presets]}, lambda: _table(all_presets)
    )


@cache
def load_presets() -> Mapping[str, Preset]:
    """Return all presets by name."""
    document = tomllib.loads((files("rekindle.cli.submit") / FILE).read_text(encoding="utf-8"))
    sources = document["sources"]
    loaded = {}
    for name, members in document["presets"].items():
        values = tuple(
            PresetValue(member=member, value=value, source=sources[source])
            for member, value, source in members.pop("values")
        )
        loaded[name] = Preset(name=name, values=values, **members)
    return loaded


def find_preset(name: str) -> Preset:
    """Return the preset of this name; raise CliError if it does not exist."""
    if name in load_presets():
        return load_presets()[name]
    raise CliError(
        f"Preset {name!r} does not exist.",
        "List all presets: rekindle presets",
        exit_code=ExitCode.USAGE,
        code="no_such_preset",
    )


def _table(all_presets: list[Preset]) -> "Iterator[RenderableType]":
    table = new_table("preset", "method", "what it trains", "learning rate", "batch", "model")
    for preset in all_presets:
        values = {value.member: value.value for value in preset.values}
        rate, batch = values.get("training.learning_rate"), values.get("hyperparameters.batch_size")
        cells = (formats.DASH if v is None else f"{v:g}" for v in (rate, batch))
        table.add_row(preset.name, preset.method, preset.about, *cells, preset.model)
    yield table
    yield "Show every value with its source: rekindle presets NAME"
    yield "Next: rekindle submit FILE --preset NAME; other options override the preset."


def _preset_lines(preset: Preset) -> "Iterator[RenderableType]":
    yield f"{preset.name}: {preset.model}, method {preset.method}, {preset.about}"
    table = new_table("member", "value", "source")
    for value in preset.values:
        text = f"{value.value:g}" if isinstance(value.value, float) else str(value.value)
        table.add_row(value.member, text, value.source)
    yield table
    yield f"Next: rekindle submit FILE --preset {preset.name}"
