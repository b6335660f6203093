"""Write output files completely or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rekindle.cli.errors import CliError


@contextmanager
def partial_file(path: Path) -> Iterator[Path]:
    """Yield a file beside ``path`` that replaces it at the end; an exception removes it."""
    part_path = path.with_name(f".{path.name}.part")
    # With the ancestors: mkdir names the one that it cannot create.
    own_paths = {str(part_path), *map(str, part_path.parents)}
    try:
        yield part_path
        part_path.replace(path)
    except OSError as error:
        # A full disk names no file. Neither does a failed read of an input, which is rarer.
        if error.filename is not None and str(error.filename) not in own_paths:
            raise  # an input file
        raise CliError(f"Cannot write {path}: {error.strerror}.") from error
    finally:
        with suppress(OSError):  # exists() raises in a folder without search permission
            part_path.unlink(missing_ok=True)
