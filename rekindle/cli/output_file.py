"""Write output files completely or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rekindle.cli.errors import CliError


@contextmanager
def partial_file(path: Path) -> Iterator[Path]:
    """Yield a file beside ``path`` that replaces it at the end; an exception removes it."""
    part = path.with_name(f".{path.name}.part")
    try:
        yield part
        part.replace(path)
    except OSError as error:
        if error.filename not in (None, str(part), str(part.parent)):
            raise  # an input file
        raise CliError(f"Cannot write {path}: {error.strerror}.") from error
    finally:
        if part.exists():
            part.unlink()
