"""Reader of typed fields in JSON and TOML objects, with a one-line refusal of each wrong field.

Code that reads a file asks an `Entries` for each field with its type and range. It gets the value, or an error that
says where the field is, what it must be, and what the file has instead. An error never quotes Python.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from hwgen.errors import HwgenError, InputError

#: Default limit of the magnitude of an integer field: beyond every board, and small enough for arithmetic.
MAX_INTEGER = 1_000_000_000
#: Names for messages of the JSON types that correspond to Python's types.
_NAMES: dict[type, str] = {dict: "an object", list: "an array", str: "a string", int: "an integer"}
_NAMES |= {bool: "true or false", float: "a number"}
_SHOWN = 40

Default = TypeVar("Default")


class _Needed:
    """Type of the default value that marks a field without a default, which must be present."""


_NEEDED = _Needed()


def parse(text: str | bytes, where: str, error: type[HwgenError] = InputError, help: str = "") -> Any:
    """Parse a JSON text, and return its value, or raise ``error`` if the text is not JSON.

    The message begins with ``where``, the name of the text, and ends with ``help``.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as reason:
        why = f"{reason.msg} in line {reason.lineno}"
    except UnicodeDecodeError:
        why = "it is not UTF-8"
    except (ValueError, RecursionError):
        why = "a number is too long, or it is nested too deep"
    raise error(f"{where} is not JSON: {why}{'; ' * bool(help)}{help}")


def shown(value: Any) -> str:
    """Return the text of a JSON value for a message, cut to 40 characters; objects and arrays by their type."""
    if isinstance(value, dict | list):
        return _NAMES[type(value)]
    try:
        text = json.dumps(value, default=lambda other: type(other).__name__)
    except ValueError:  # Python converts no integer of more than 4300 digits
        return "an integer that is too long"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


@dataclass(frozen=True)
class Entries:
    """Reader of the fields of one JSON or TOML object, which refuses wrong fields.

    Parameters
    ----------
    values : mapping
        Values of the fields, by key.
    where : str
        Beginning of messages: the file, and the object in it.
    error : type
        Class of the errors to raise.
    help : str
        End of messages: a remedy.
    """

    values: Mapping[str, Any]
    where: str
    error: type[HwgenError] = InputError
    help: str = ""

    @classmethod
    def of(cls, value: Any, where: str, error: type[HwgenError] = InputError, help: str = "") -> Entries:
        """Return a reader of a JSON object; refuse any other JSON value."""
        reader = cls({}, where, error, help)
        if not isinstance(value, dict):
            reader.refuse(f"must be an object, not {shown(value)}")
        return cls(value, where, error, help)

    @classmethod
    def parsed(cls, text: str | bytes, where: str, error: type[HwgenError] = InputError, help: str = "") -> Entries:
        """Parse a JSON text, and return a reader of its object; refuse any other text."""
        return cls.of(parse(text, where, error, help), where, error, help)

    def refuse(self, why: str, key: str | None = None) -> NoReturn:
        """Raise the reader's error, with the text ``why``, for the field ``key`` or for the whole object."""
        begin = f"{self.where}{':' * (key is not None)} {'' if key is None else f'{key} '}"
        raise self.error(f"{begin}{why}{'; ' * bool(self.help)}{self.help}")

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def only(self, known: Collection[str]) -> Entries:
        """Refuse an object with fields other than ``known``, and return the reader itself."""
        if unknown := sorted(set(self.values) - set(known)):
            self.refuse(f"has no {' and '.join(map(shown, unknown))}: it has {', '.join(sorted(known))}")
        return self

    def _field(self, key: str, expected_type: type, default: Any) -> Any:
        if key not in self.values:
            if default is not _NEEDED:
                return default
            self.refuse(f"lacks {key!r}")
        value = self.values[key]
        if default is None and value is None:
            return None
        types = (int, float) if expected_type is float else (expected_type,)
        if not isinstance(value, types) or isinstance(value, bool) != (expected_type is bool):
            self.refuse(f"must be {_NAMES[expected_type]}, not {shown(value)}", key)
        return value

    def text(self, key: str, default: Any = _NEEDED, *, of: Collection[str] = ()) -> Any:
        """Return the string in a field, or ``default``; refuse a string that is not in ``of``, if ``of`` is given."""
        value = self._field(key, str, default)
        if of and value not in of and value is not default:
            self.refuse(f"must be {' or '.join(map(shown, of))}, not {shown(value)}", key)
        return value

    def flag(self, key: str, default: Any = _NEEDED) -> Any:
        """Return the boolean in a field, or ``default`` if the field is missing."""
        return self._field(key, bool, default)

    def integer(self, key: str, minimum: int = -MAX_INTEGER, maximum: int = MAX_INTEGER, default: Any = _NEEDED) -> Any:
        """Return the integer in a field, or ``default``; refuse one outside of ``minimum`` to ``maximum``."""
        value = self._field(key, int, default)
        if value is not default and not minimum <= value <= maximum:
            self.refuse(f"must be {minimum:,} to {maximum:,}, not {shown(value)}", key)
        return value

    def real(self, key: str, default: Any = _NEEDED) -> Any:
        """Return the number in a field as a float, or ``default``; refuse a number that is not finite."""
        value = self._field(key, float, default)
        if value is default:
            return value
        try:
            real = float(value)
        except OverflowError:
            real = math.inf
        if not math.isfinite(real):
            self.refuse(f"must be a finite number, not {shown(value)}", key)
        return real

    def entries(self, key: str, default: Any = _NEEDED) -> Entries:
        """Return a reader of the object that is in a field, or of ``default`` if the field is missing."""
        return Entries(self._field(key, dict, default), f"{self.where}: {key}", self.error, self.help)

    def objects(self, key: str) -> list[Entries]:
        """Return a reader of each object in a field, which must be an array of objects."""
        return [
            Entries.of(value, f"{self.where}: {key}[{index}]", self.error, self.help)
            for index, value in enumerate(self._field(key, list, _NEEDED))
        ]

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the strings in a field, which must be an array of strings."""
        values = self._field(key, list, _NEEDED)
        for value in values:
            if not isinstance(value, str):
                self.refuse(f"must be an array of strings, not of {shown(value)}", key)
        return tuple(values)

    def integers(self, key: str, minimum: int = -MAX_INTEGER, maximum: int = MAX_INTEGER) -> tuple[int, ...]:
        """Return the integers in a field, which must be an array of integers from ``minimum`` to ``maximum``."""
        values = self._field(key, list, _NEEDED)
        for value in values:
            if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
                self.refuse(f"must be an array of integers from {minimum:,} to {maximum:,}, not of {shown(value)}", key)
        return tuple(values)

    def sizes(self, known: Collection[str]) -> dict[str, int]:
        """Return all fields of the object by name, which must be integers with names from ``known``."""
        return {key: self.integer(key) for key in self.only(known).values}
