"""What `make up` prints can be pasted: every export is whole and says what is so."""

import shlex
from pathlib import Path

from rekindle.local.layout import StackLayout
from rekindle.local.state_folder import StackPorts, StateFolder
from rekindle.local.up import ready_banner


def test_every_export_can_be_pasted_into_a_shell(tmp_path: Path) -> None:
    layout = StackLayout(StateFolder(tmp_path), StackPorts.starting_at(9080))
    lines = [line.strip() for line in ready_banner(layout, "rk-key", "token").splitlines()]

    words = [word for line in lines if line.startswith("export ") for word in shlex.split(line)]
    exports = dict(word.split("=", 1) for word in words if word != "export")

    link = next(line for line in lines if line.startswith("Console"))
    assert "http://127.0.0.1:9080/#sign-in=token " in link
    assert exports["OPENAI_API_KEY"] == "rk-key"
    assert exports["OPENAI_BASE_URL"] == "http://127.0.0.1:9080/v1"
    assert exports["REKINDLE_STORAGE"] == layout.storage
    assert exports["REQUESTS_CA_BUNDLE"] == str(layout.ca)
