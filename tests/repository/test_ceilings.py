"""Limits of size: lines of a file, and lines of a function."""

from tests.repository.sources import functions, python_files, text

LONGEST_FILE = 400
LONGEST_FUNCTION = 50


def test_no_file_has_more_than_400_lines() -> None:
    lengths = {str(file): len(text(file).splitlines()) for file in python_files()}

    assert {f: n for f, n in lengths.items() if n > LONGEST_FILE} == {}


def test_no_function_has_more_than_50_lines() -> None:
    lengths = {
        f"{file}:{node.lineno} {node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for file in python_files()
        for node in functions(file)
    }

    assert {f: n for f, n in lengths.items() if n > LONGEST_FUNCTION} == {}
