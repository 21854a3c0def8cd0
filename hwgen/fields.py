"""Typed fields of the files that hwgen reads: JSON and TOML objects, with one clear line for whatever is wrong.

Whoever reads a file asks an `Entries` for each field with its type and range, and gets the value or a refusal that says
where the field is, what it must be, and what is there. A refusal never quotes Python.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from hwgen.errors import HwgenError, InputError

#: Largest magnitude of an integer without a range of its own: beyond every board, and small enough to reckon with.
MOST = 1_000_000_000
#: JSON's names of Python's types.
_NAMES: dict[type, str] = {dict: "an object", list: "an array", str: "a string", int: "an integer"}
_NAMES |= {bool: "true or false", float: "a number"}
_SHOWN = 40

Default = TypeVar("Default")


class _Needed:
    """Default of a field that must be there."""


_NEEDED = _Needed()


def parse(text: str | bytes, where: str, error: type[HwgenError] = InputError, help: str = "") -> Any:
    """Return the JSON value in a text; where there is none, raise ``error`` with ``where`` and ``help`` around it."""
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
    """Return a JSON value for a message, cut to a reasonable length."""
    if isinstance(value, dict | list):
        return _NAMES[type(value)]
    try:
        text = json.dumps(value, default=lambda other: type(other).__name__)
    except ValueError:  # Python's own limit, which long integers meet
        return "an integer that is too long"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


@dataclass(frozen=True)
class Entries:
    """Reader of the fields of one object.

    Parameters
    ----------
    values : mapping
    where : str
        Beginning of messages: the file, and the object in it.
    error : type
        What is raised.
    help : str
        End of messages: what would work.
    """

    values: Mapping[str, Any]
    where: str
    error: type[HwgenError] = InputError
    help: str = ""

    @classmethod
    def of(cls, value: Any, where: str, error: type[HwgenError] = InputError, help: str = "") -> Entries:
        """Return the reader of a JSON value, which must be an object."""
        reader = cls({}, where, error, help)
        if not isinstance(value, dict):
            reader.refuse(f"must be an object, not {shown(value)}")
        return cls(value, where, error, help)

    @classmethod
    def parsed(cls, text: str | bytes, where: str, error: type[HwgenError] = InputError, help: str = "") -> Entries:
        """Return the reader of a text's JSON object."""
        return cls.of(parse(text, where, error, help), where, error, help)

    def refuse(self, why: str, key: str | None = None) -> NoReturn:
        """Raise the error for a field, or for the object as a whole."""
        begin = f"{self.where}{':' * (key is not None)} {'' if key is None else f'{key} '}"
        raise self.error(f"{begin}{why}{'; ' * bool(self.help)}{self.help}")

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def only(self, known: Collection[str]) -> Entries:
        """Return the reader itself, if it has no other fields than these."""
        if unknown := sorted(set(self.values) - set(known)):
            self.refuse(f"has no {' and '.join(map(shown, unknown))}: it has {', '.join(sorted(known))}")
        return self

    def _field(self, key: str, kind: type, default: Any) -> Any:
        if key not in self.values:
            if default is not _NEEDED:
                return default
            self.refuse(f"lacks {key!r}")
        value = self.values[key]
        if default is None and value is None:
            return None
        kinds = (int, float) if kind is float else (kind,)
        if not isinstance(value, kinds) or isinstance(value, bool) != (kind is bool):
            self.refuse(f"must be {_NAMES[kind]}, not {shown(value)}", key)
        return value

    def text(self, key: str, default: Any = _NEEDED, *, of: Collection[str] = ()) -> Any:
        """Return a string, one ``of`` these if they are given."""
        value = self._field(key, str, default)
        if of and value not in of and value is not default:
            self.refuse(f"must be {' or '.join(map(shown, of))}, not {shown(value)}", key)
        return value

    def flag(self, key: str, default: Any = _NEEDED) -> Any:
        """Return true or false."""
        return self._field(key, bool, default)

    def integer(self, key: str, least: int = -MOST, most: int = MOST, default: Any = _NEEDED) -> Any:
        """Return an integer from ``least`` to ``most``."""
        value = self._field(key, int, default)
        if value is not default and not least <= value <= most:
            self.refuse(f"must be {least:,} to {most:,}, not {shown(value)}", key)
        return value

    def number(self, key: str, default: Any = _NEEDED) -> Any:
        """Return a finite number as a float."""
        value = self._field(key, float, default)
        if value is default:
            return value
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            self.refuse(f"must be a finite number, not {shown(value)}", key)
        return number

    def entries(self, key: str, default: Any = _NEEDED) -> Entries:
        """Return the reader of a field that is an object."""
        return Entries(self._field(key, dict, default), f"{self.where}: {key}", self.error, self.help)

    def objects(self, key: str) -> list[Entries]:
        """Return the readers of a field that is an array of objects."""
        return [
            Entries.of(value, f"{self.where}: {key}[{index}]", self.error, self.help)
            for index, value in enumerate(self._field(key, list, _NEEDED))
        ]

    def texts(self, key: str) -> tuple[str, ...]:
        """Return an array of strings."""
        values = self._field(key, list, _NEEDED)
        for value in values:
            if not isinstance(value, str):
                self.refuse(f"must be an array of strings, not of {shown(value)}", key)
        return tuple(values)

    def integers(self, key: str, least: int = -MOST, most: int = MOST) -> tuple[int, ...]:
        """Return an array of integers from ``least`` to ``most``."""
        values = self._field(key, list, _NEEDED)
        for value in values:
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
                self.refuse(f"must be an array of integers from {least:,} to {most:,}, not of {shown(value)}", key)
        return tuple(values)

    def sizes(self, known: Collection[str]) -> dict[str, int]:
        """Return all fields, which must be integers and have one of these names."""
        return {key: self.integer(key) for key in self.only(known).values}
