"""Write output files completely or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rekindle.cli.errors import CliError


@contextmanager
def partial_file(path: Path) -> Iterator[Path]:
    """Yield a file beside ``path`` that replaces it at the end; an exception removes it."""
    part = path.with_name(f".{path.name}.part")
    own = {str(part), *map(str, part.parents)}  # mkdir names the ancestor that it cannot create
    try:
        yield part
        part.replace(path)
    except OSError as error:
        # A full disk names no file. Neither does a failed read of an input, which is rarer.
        if error.filename is not None and str(error.filename) not in own:
            raise  # an input file
        raise CliError(f"Cannot write {path}: {error.strerror}.") from error
    finally:
        with suppress(OSError):  # exists() raises in a folder without search permission
            part.unlink(missing_ok=True)
