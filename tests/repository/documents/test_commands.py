"""Every `rekindle` command that a page shows exists, with its options and the members it sets."""

import re
import shlex
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import typer

from rekindle.cli.main import app
from rekindle.cli.submit.job_settings import find_member
from tests.repository.sources import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"```(?:sh)?\n(.*?)```", re.DOTALL)
COMMENT = re.compile(r"\s{2,}[^-\s\"].*$|\s+#.*$")


def commands(page: str) -> Iterator[list[str]]:
    """Yield the words of each command line in the page's code blocks, without comments."""
    for block in BLOCK.findall(page):
        for line in re.sub(r"\\\n\s*", "", block).splitlines():
            bare = COMMENT.sub("", line.removeprefix("$ "))
            for part in bare.split(";"):
                if part.strip().startswith("rekindle "):
                    yield shlex.split(part.split(">")[0])


def unknown(arguments: list[str]) -> list[str]:
    """Return the words of a command that do not exist: commands, options, members of --set."""
    command: Any = typer.main.get_command(app)
    remaining = arguments[1:]
    known_options = {option for param in command.params for option in param.opts}
    while hasattr(command, "commands") and remaining and not remaining[0].startswith("-"):
        subcommand = command.commands.get(remaining[0])
        if subcommand is None:
            return [remaining[0]]
        command, remaining = subcommand, remaining[1:]
        known_options |= {
            opt for param in command.params for opt in (*param.opts, *param.secondary_opts)
        }
    options = [word.split("=")[0] for word in remaining if re.match(r"--?[a-z]", word)]
    settings = [value for word, value in pairwise(remaining) if word == "--set"]
    return [
        *(option for option in options if option not in known_options | {"--help", "-h"}),
        *(setting for setting in settings if not find_member(setting.partition("=")[0])),
    ]


def test_every_command_of_a_page_exists_with_its_options() -> None:
    documented = [command for page in PAGES for command in commands(page.read_text())]

    assert [" ".join(command) for command in documented if unknown(command)] == []


def test_a_command_that_is_not_there_is_noticed() -> None:
    page = "```\nrekindle train x\nrekindle submit a \\\n  --eval-steps 6   how often\n"
    page += "rekindle submit a --set training.ema_decey=1 --set seed=1\n```"

    assert [unknown(command) for command in commands(page)] == [
        ["train"],
        ["--eval-steps"],
        ["training.ema_decey=1"],
    ]
