"""Text of strangers, made safe to look at: what a terminal would obey or hide is shown instead.

Control characters (C0, C1, DEL), those that turn the direction of text or take no room, line and
paragraph separators, and halves of surrogate pairs become escapes as Python and JSON write them.
"""

import unicodedata

_SHOWN_AS_ESCAPES = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # general categories of Unicode


def printable(text: str) -> str:
    r"""Return one line: a newline is shown as ``\n``."""
    return text.translate(_LINE)


def printable_lines(text: str) -> str:
    """Return lines: newlines and tabs stay as they are."""
    return text.translate(_LINES)


def printable_json(text: str) -> str:
    """Return JSON that means the same; of its own it has escapes for C0 alone."""
    return text.translate(_JSON)


class _Shown(dict[int, str]):
    """A table for ``str.translate``; of each character when it is first met."""

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
