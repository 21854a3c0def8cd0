"""Text that a terminal or a page can show as it is: characters that are not printable are written as escapes.

Names in a model are anybody's. A terminal obeys control characters in them: it changes its title, moves its cursor or
hides a line; marks of direction (U+202E, say) show text in another order than it has. So whatever is printed goes
through `Escaped`, and what is put into a table, a report or a comment through `line`. Data files keep true names.
"""

from __future__ import annotations

from typing import Any, TextIO

__all__ = ["Escaped", "counted", "line", "text"]


def text(string: str) -> str:
    """Return ``string`` with escapes (``\\x1b``) for all that is not printable, but for ends of lines and tabs."""
    if all(map(str.isprintable, string.split("\n"))):  # nearly always
        return string
    return "".join(each if each in "\n\t" or each.isprintable() else _escape(each) for each in string)


def line(string: str) -> str:
    """Return ``string`` with escapes for all that is not printable, ends of lines and tabs as well."""
    return string if string.isprintable() else "".join(each if each.isprintable() else _escape(each) for each in string)


def counted(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 layer``, ``2 layers``."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


class Escaped:
    """A stream that writes `text` of what it is given to another one, and is that one in all else.

    Attributes
    ----------
    raw : text stream
        The other one, for what moves the cursor on purpose.
    """

    def __init__(self, raw: TextIO) -> None:
        self.raw = raw

    def write(self, string: str) -> int:
        self.raw.write(text(string))
        return len(string)

    def writelines(self, strings: list[str]) -> None:
        for string in strings:
            self.write(string)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)
