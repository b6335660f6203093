"""Check the source of a python grader without running it.

Part of the contract: the service refuses a source that cannot work before a job is paid for.
"""

import ast
from collections.abc import Mapping

# Bytes. OpenAI takes 256 KiB, but CPython 3.11 reads f-strings in the square of their length: a
# source below 1 MiB took 28 s.
LARGEST_SOURCE = 32 * 1024
_REMEDY = "define `def grade(sample, item):` at the top of the source"


def check_sources(sources: Mapping[str, str]) -> None:
    """Check each of the sources, which are named by the members that they stand in."""
    for where, source in sources.items():
        check_source(source, where)


def check_source(source: str, where: str) -> None:
    """Raise ValueError, beginning with ``where``, unless it compiles and defines `grade`."""
    if len(source.encode(errors="surrogatepass")) > LARGEST_SOURCE:
        raise ValueError(f"{where}: longer than {LARGEST_SOURCE} bytes")
    try:
        tree = ast.parse(source, "grader")
        compile(source, "grader", "exec", dont_inherit=True)
    except SyntaxError as e:
        line = f"line {e.lineno}: " if e.lineno else ""
        raise ValueError(f"{where}: {line}{e.msg}") from None
    except (MemoryError, RecursionError):
        raise ValueError(f"{where}: its expressions are nested too deeply") from None
    except ValueError as e:  # half of a surrogate pair
        raise ValueError(f"{where}: {e}") from None
    _check_grade(tree, where)


def _check_grade(tree: ast.Module, where: str) -> None:
    """Check that the last definition of `grade` takes two positional arguments."""
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    defined = [n for n in functions if n.name == "grade"]
    if not defined:
        raise ValueError(f"{where}: no function `grade`; {_REMEDY}")
    last = defined[-1]
    if isinstance(last, ast.AsyncFunctionDef):
        raise ValueError(f"{where}: line {last.lineno}: `grade` is async; {_REMEDY}")
    parameters = last.args
    if len(parameters.posonlyargs + parameters.args) != 2 or None in parameters.kw_defaults:
        raise ValueError(f"{where}: line {last.lineno}: `grade` takes two arguments; {_REMEDY}")
