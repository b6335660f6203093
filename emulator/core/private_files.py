"""Files that hold secrets: only their owner can read them, at any moment."""

import os
from pathlib import Path


def write_private(file: Path, content: bytes) -> None:
    """Write a file of mode 0600, whole or not at all."""
    temporary = file.with_name(f"{file.name}.{os.getpid()}.new")
    temporary.unlink(missing_ok=True)
    temporary.touch(mode=0o600)
    temporary.write_bytes(content)
    os.replace(temporary, file)  # noqa: PTH105 - one syscall, no half-written key
