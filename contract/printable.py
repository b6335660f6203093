"""Make untrusted text safe to print: escape what a terminal would interpret or hide.

Control characters (C0, C1, DEL), those that turn the direction of text or take no room, line and
paragraph separators, and halves of surrogate pairs become escapes as Python and JSON write them.
"""

import unicodedata

_SHOWN_AS_ESCAPES = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # general categories of Unicode


def printable(text: str) -> str:
    """Return the text on one line; a newline becomes ``\n``."""
    return text.translate(_LINE)


def printable_lines(text: str) -> str:
    """Return the text with escapes; newlines and tabs are kept."""
    return text.translate(_LINES)


def printable_json(text: str) -> str:
    """Return equivalent JSON; standard JSON escapes C0 characters only."""
    return text.translate(_JSON)


class _Shown(dict[int, str]):
    """Translation table for ``str.translate``, filled when a character is first met."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if unicodedata.category(character) in _SHOWN_AS_ESCAPES:
            character = self.escape(character)
        self[code] = character
        return character

    def escape(self, character: str) -> str:
        return character.encode("unicode_escape").decode()


class _ShownInJson(_Shown):
    def escape(self, character: str) -> str:
        units = character.encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))


_LINE = _Shown()
_LINES = _Shown({ord(kept): kept for kept in "\n\t"})
_JSON = _ShownInJson({ord("\n"): "\n"})  # between members; within text JSON escapes it itself
