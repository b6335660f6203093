"""The command line prints only through `rekindle.terminal`."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OWN_WORDS = {  # files that print by themselves: their own sentences, or text made printable there
    "rekindle/local/setup.py",
    "rekindle/stage.py",
    "rekindle/local/up.py",
    "rekindle/local/demo.py",
    "rekindle/cli/main.py",
    "rekindle/cli/command.py",
}


def test_only_the_terminal_module_writes_what_strangers_may_have_sent() -> None:
    violations = set()
    for file in sorted((ROOT / "rekindle").rglob("*.py")):
        name = str(file.relative_to(ROOT))
        for node in ast.walk(ast.parse(file.read_text())):
            is_print = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "print"
            is_console = (
                isinstance(node, ast.ImportFrom)
                and node.module == "rich.console"
                and "Console" in {alias.name for alias in node.names}
            )
            if is_console or (is_print and name not in OWN_WORDS):
                violations.add(f"{name}: {ast.unparse(node)}")

    assert violations == set(), "use rekindle.terminal.Console or rekindle.terminal.write_text"
