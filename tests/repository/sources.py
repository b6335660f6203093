"""Files of the repository, for the tests that read them."""

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def files() -> tuple[Path, ...]:
    """Return every committed or new unignored file, relative to the root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = sorted(set(output.split("\0")) - {""})
    return tuple(Path(name) for name in names if (ROOT / name).is_file())


def python_files() -> list[Path]:
    """Return every Python file."""
    return [file for file in files() if file.suffix == ".py"]


def text(file: Path) -> str:
    """Return the text of a file; invalid bytes are replaced."""
    return (ROOT / file).read_text(errors="replace")


def links(page: Path) -> list[str]:
    """Return the targets of a page's links to files of the repository, as they are written."""
    return re.findall(r"\]\((?!https?://|#|mailto:)([^)#\s]+)", text(page))


def functions(file: Path) -> Iterator[FunctionNode]:
    """Yield every function and method in a Python file."""
    for node in ast.walk(ast.parse(text(file))):
        if isinstance(node, FunctionNode):
            yield node
