"""Check the files of an exported model before loading any weight."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

INDEX = "model.safetensors.index.json"


def wrong_files(folder: Path, dtypes: tuple[str, ...]) -> Iterator[str]:
    """Yield what is wrong with the weight files.

    ``dtypes``: the allowed dtypes.
    """
    files: dict[str, str] = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            files |= dict.fromkeys(_names(path), path.name)
        except (OSError, SafetensorError) as error:
            yield f"{path.name} cannot be read: {error}"
            return
        yield from _wrong_dtypes(path, dtypes)
    index = folder / INDEX
    if index.exists():
        named: dict[str, str] = json.loads(index.read_text())["weight_map"]
        for name in sorted(named.keys() | files.keys()):
            if named.get(name) != files.get(name):
                yield (
                    f"{name} is in {files.get(name, 'no file')}, the index says "
                    f"{named.get(name, 'nothing')}"
                )
                return
    elif not files:
        yield "there are no weights"


def weight_bytes(folder: Path) -> int:
    """Return the size of all weights in a folder."""
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def _names(path: Path) -> list[str]:
    opened: Any = safe_open(path, "pt")
    return list(opened.keys())


def _wrong_dtypes(path: Path, dtypes: tuple[str, ...]) -> Iterator[str]:
    opened: Any = safe_open(path, "pt")
    for name in opened.keys():  # noqa: SIM118 - it is no dict
        dtype = opened.get_slice(name).get_dtype()
        if dtype not in dtypes:
            yield f"{name} is saved as {dtype}, the trained model has {' and '.join(dtypes)}"
            return
