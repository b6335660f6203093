"""What strangers wrote reaches a terminal as text and as nothing else."""

import io
import json
import sys
import unicodedata

import pytest
from rich.table import Table
from rich.text import Text

from contract.printable import printable, printable_json, printable_lines
from rekindle.terminal import Console

OBEYED = {"Cc", "Cf", "Cs", "Zl", "Zp"}
EVERYTHING = "".join(map(chr, range(sys.maxunicode + 1)))
SOME = EVERYTHING[:0x2100] + EVERYTHING[0xD7F0:0xD810] + EVERYTHING[0xDFF0:0xE010] + "🔥\U000e0041"
HOSTILE = {
    "clear the screen": "\x1b[2J",
    "write into the clipboard": "\x1b]52;c;cm0gLXJmIH4=\x07",
    "a title": "\x1b]0;root\x1b\\",
    "a link": "\x1b]8;;http://evil\x07click\x1b]8;;\x07",
    "C1's own CSI": "\x9b2J",
    "back over what was printed": "paid\b\b\b\bfree",
    "over the line": "failed\rsucceeded",
    "text turned around": "a\u202egnp.exe",
    "isolated text": "\u2066a\u2069",
    "no room": "pass\u200bword\ufeff",
    "half a pair": "\ud800",
    "a tag": "\U000e0041",
    "another line": "a\u2028b",
}


def obeyed(text: str, but: str = "") -> set[str]:
    return {c for c in text if unicodedata.category(c) in OBEYED and c not in but}


def test_no_character_of_unicode_that_a_terminal_obeys_or_hides_comes_through() -> None:
    assert obeyed(printable(EVERYTHING)) == set()
    assert obeyed(printable_lines(EVERYTHING)) == {"\n", "\t"}


def test_what_is_harmless_stays_as_it_is() -> None:
    text = "Größe 尺寸 🔥 café\u00a0— 3 + 4\\n"
    assert printable(text) == printable_lines(text) == printable_json(text) == text


def test_a_control_character_is_shown_as_its_escape() -> None:
    assert printable("a\x1b[2J\x9b\n\u202e") == r"a\x1b[2J\x9b\n\u202e"
    assert printable_lines("a\x1b\n\tb") == "a\\x1b\n\tb"


def test_json_means_the_same_when_it_is_made_printable() -> None:
    for indent in (None, 2):
        printed = printable_json(json.dumps({"text": SOME}, ensure_ascii=False, indent=indent))
        assert obeyed(printed, "\n") == set()
        assert json.loads(printed) == json.loads(json.dumps({"text": SOME}))


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("on_terminal", [True, False])
def test_a_console_prints_no_strangers_control_characters(text: str, on_terminal: bool) -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=on_terminal, no_color=True, width=200)
    table = Table(title=text)
    table.add_column(text)
    table.add_row(text)
    table.add_row(Text(text))
    for printed in (text, Text(text), table):
        console.print(printed, style=None)
    console.rule(text)

    unstyled = (
        written.getvalue().replace("\x1b[1m", "").replace("\x1b[3m", "").replace("\x1b[0m", "")
    )
    assert obeyed(unstyled, "\n") == set()


def test_a_console_takes_no_text_for_markup() -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=200)
    table = Table.grid()
    table.add_row("[link=http://evil]cheap[/link] :smile:")
    console.print(table)
    console.print("[red]not failed[/nothing]")

    assert written.getvalue().splitlines() == [
        "[link=http://evil]cheap[/link] :smile:",
        "[red]not failed[/nothing]",
    ]
