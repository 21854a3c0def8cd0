"""Printable text for terminals and pages: unprintable characters become escapes.

A model's names can contain anything. A terminal obeys control characters in them: it changes its title, moves its
cursor or hides a line. Marks of direction, such as U+202E, reorder the text that is shown. Therefore all printed text
passes through `Escaped`, and all text in a table, a report or a comment through `line`. Data files keep the original
names.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO


def text(string: str) -> str:
    r"""Return ``string`` with escapes (``\x1b``) for unprintable characters, except line ends and tabs."""
    if all(map(str.isprintable, string.split("\n"))):  # nearly always
        return string
    return "".join(
        character if character in "\n\t" or character.isprintable() else _escape(character) for character in string
    )


def line(string: str) -> str:
    """Return ``string`` with escapes for all unprintable characters, including line ends and tabs."""
    return (
        string
        if string.isprintable()
        else "".join(character if character.isprintable() else _escape(character) for character in string)
    )


def counted(count: int, noun: str) -> str:
    """Return a count with its noun in the singular or plural: ``1 layer``, ``2 layers``."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def percent(share: float) -> str:
    """Return a share (0 to 1) as a percentage with one decimal, which is 0.0% and 100.0% only if it is so exactly."""
    if 0 < share < 1:
        return f"{min(max(round(100 * share, 1), 0.1), 99.9):.1f}%"
    return f"{share:.1%}"


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


class Escaped:
    """Text stream that escapes what it writes to another stream, and otherwise behaves like that stream.

    Attributes
    ----------
    raw : text stream
        Stream that receives the escaped text. Callers that move the cursor on purpose write to it directly.
    name : str
        Name of the stream in errors of the file system, such as a full disk. Without a name these errors are
        ignored, and what can't be written is lost.
    """

    def __init__(self, raw: TextIO, name: str = "") -> None:
        self.raw, self._name = raw, name

    def write(self, string: str) -> int:
        """Write a string with its unprintable characters escaped, and return the length of the original string."""
        with self._named_errors():
            self.raw.write(text(string))
        return len(string)

    def flush(self) -> None:
        """Flush the wrapped stream."""
        with self._named_errors():
            self.raw.flush()

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Add the stream's name to file system errors in the ``with`` block; ignore them if the stream has no name."""
        try:
            yield
        except OSError as error:
            if self._name:
                raise OSError(error.errno, error.strerror, self._name) from None

    def writelines(self, strings: list[str]) -> None:
        """Write several strings with their unprintable characters escaped."""
        for string in strings:
            self.write(string)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)
