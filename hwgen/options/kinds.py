"""Kinds of values of options (counts, rates, pairs, choices), each with its parsers and its check."""

from __future__ import annotations

import argparse
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from numbers import Integral, Real
from typing import Any, cast

MAX_RATE = 1e12
"""Maximum number that an option for a rate, clock or bandwidth accepts, in the option's unit."""
MAX_VALUES = 100_000
"""Maximum number of values of one option in a sweep."""
SMALLEST = Decimal("1e-12")
"""Minimum number and minimum step in an option's values for a sweep; smaller steps can't divide a range."""
SHORT = len("dsp,lut,auto")
"""Maximum number of characters of a list of choices that a sweep's help shows as the placeholder of values."""


class ValueKind(ABC):
    """Base class of the kinds of values that an option of a plan or a model can have.

    Parameters
    ----------
    type_name : str
        Type of the value in the documentation of Python.
    must_be : str
        Noun phrase for a right value, for error messages.
    metavar : str, optional
        Placeholder of the value in the help of a command.
    swept_metavar : str, optional
        Placeholder of several values in the help of a sweep; ``metavar`` if not given.
    """

    former: Mapping[str, str] = {}
    """Mapping from former names of values, which are also accepted, to current names."""
    flag: str | None = None
    """Command-line name of options of this kind, such as ``--input-type``, if not made from the Python name."""

    def __init__(self, type_name: str, must_be: str, metavar: str | None = None, swept_metavar: str | None = None):
        self.type_name, self.must_be = type_name, must_be
        self.metavar, self.swept_metavar = metavar, swept_metavar or metavar

    @abstractmethod
    def accepts(self, value: Any) -> bool:
        """Return whether a Python value is of this kind."""

    def current(self, value: Any) -> Any:
        """Return the current name if a value is a former name; otherwise return the value unchanged."""
        return self.former.get(value, value) if isinstance(value, str) else value

    def parse(self, text: str) -> Any:
        """Return the value of this kind for text from the command line, or raise ArgumentTypeError."""
        return text

    def read(self, value: Any) -> Any:
        """Return a Python value unchanged, or parse it if it is command-line text for a value, such as ``"4x8"``."""
        if isinstance(value, str) and not self.accepts(value):
            with suppress(argparse.ArgumentTypeError):
                return self.parse(value)
        return value

    def parse_values(self, text: str) -> list[Any]:
        """Return a list of values for an option's text in a sweep, where commas separate the values.

        An ArgumentTypeError is raised if a value is wrong or occurs twice.
        """
        return different([self.parse(part) for part in text.split(",")], text)

    def argument(self) -> dict[str, Any]:
        """Return a dict of keyword arguments of `argparse.ArgumentParser.add_argument`, without ``help``."""
        return {"type": self.parse, "metavar": self.metavar}

    def more_arguments(self) -> dict[str, dict[str, Any]]:
        """Return a dict of further command-line options that make up the value: `add_argument` keywords by name."""
        return {}

    def given_value(self, arguments: argparse.Namespace, name: str) -> Any:
        """Return the value of the option ``name`` on a command line; ``None`` or False if it is not given."""
        return getattr(arguments, name, None)


class Count(ValueKind):
    """Kind of option values: positive integers."""

    def __init__(self) -> None:
        super().__init__("int", "a positive integer", "N")

    def accepts(self, value: Any) -> bool:
        return _is_count(value)

    def parse(self, text: str) -> int:
        return positive_integer(text)

    def parse_values(self, text: str) -> list[Any]:
        return numbers(text, integers=True)


class CountOr(ValueKind):
    """Kind of option values: positive integers, or one of some words, such as ``auto``, in place of an integer."""

    def __init__(self, *words: str) -> None:
        texts = "|".join(words)
        super().__init__(
            f"int or {' or '.join(map(repr, words))}",
            f"a positive integer or {' or '.join(words)}",
            f"N|{texts}",
            f"N,..|{texts}",
        )
        self.words = words

    def accepts(self, value: Any) -> bool:
        return _is_count(value) or (isinstance(value, str) and value in self.words)

    def parse(self, text: str) -> int | str:
        return text if text in self.words else positive_integer(text)


class Rate(ValueKind):
    """Kind of option values: positive numbers, below ``below`` on the command line; messages name ``unit``."""

    def __init__(self, metavar: str = "N", unit: str = "", below: float = MAX_RATE):
        super().__init__("float", f"a positive number, up to {MAX_RATE:g}", metavar)
        self.unit, self.below = unit, below

    def accepts(self, value: Any) -> bool:
        # The value is not converted, because an integer can be too large for a float.
        return isinstance(value, Real) and not isinstance(value, bool) and 0 < cast("float", value) <= MAX_RATE

    def parse(self, text: str) -> float:
        return positive_number(text, self.unit, self.below)

    def parse_values(self, text: str) -> list[Any]:
        return numbers(text)


class Pair(ValueKind):
    """Kind of option values: pairs of positive integers, such as ``4x8``; ``sizes`` names the two in messages."""

    def __init__(self, metavar: str, sizes: str):
        super().__init__("tuple of int", f"two positive integers, {sizes}", metavar, f"{metavar},..")
        self.sizes = sizes

    def accepts(self, value: Any) -> bool:
        return isinstance(value, tuple | list) and len(value) == 2 and all(map(_is_count, value))

    def parse(self, text: str) -> tuple[int, int]:
        return pair(text, self.sizes)


class PairOr(Pair):
    """Kind of option values: pairs of positive integers, or one word such as ``auto`` in place of a pair."""

    def __init__(self, metavar: str, sizes: str, word: str):
        super().__init__(metavar, sizes)
        self.type_name += f" or {word!r}"
        self.must_be += f", or {word}"
        self.metavar, self.swept_metavar = f"{metavar}|{word}", f"{metavar},..|{word}"
        self.word = word

    def accepts(self, value: Any) -> bool:
        return super().accepts(value) or (isinstance(value, str) and value == self.word)

    def parse(self, text: str) -> Any:
        return text if text == self.word else super().parse(text)


class Choice(ValueKind):
    """Kind of option values: one of a few fixed words and numbers.

    Parameters
    ----------
    *choices : str or int
        Right values.
    former : mapping of str to str, optional
        Current names of choices by their former names.
    """

    def __init__(self, *choices: str | int, former: Mapping[str, str] | None = None):
        *first, last = names = [str(choice) for choice in choices]
        swept_metavar = ",".join(names) if len(",".join(names)) <= SHORT else "NAMES"
        super().__init__(f"{{{str(choices)[1:-1]}}}", f"{', '.join(first)} or {last}", swept_metavar=swept_metavar)
        self.choices, self.former = choices, former or {}

    def accepts(self, value: Any) -> bool:
        choices = (*self.choices, *self.former)
        return any(value == choice and (_is_count(value) or isinstance(value, str)) for choice in choices)

    def parse(self, text: str) -> Any:
        return {str(choice): choice for choice in self.choices}.get(text, self.current(text))

    def parse_values(self, text: str) -> list[Any]:
        words = [self.parse(word) for word in text.split(",")]
        if unknown := [word for word in words if word not in self.choices]:
            names = ", ".join(map(str, self.choices))
            raise argparse.ArgumentTypeError(f"must list some of {names}, not {unknown[0]!r}")
        return different(words, text)

    def argument(self) -> dict[str, Any]:
        integers = all(isinstance(choice, int) for choice in self.choices)
        return {"type": int if integers else self.parse, "choices": self.choices}


class Flag(ValueKind):
    """Kind of option values: True and False; the option is a flag on the command line."""

    def __init__(self) -> None:
        super().__init__("bool", "True or False")

    def accepts(self, value: Any) -> bool:
        return isinstance(value, bool)

    def argument(self) -> dict[str, Any]:
        return {"action": "store_true"}


class Text(ValueKind):
    """Kind of option values: free text; error messages show ``example``."""

    def __init__(self, metavar: str, example: str):
        super().__init__("str", f"text such as {example}", metavar)

    def accepts(self, value: Any) -> bool:
        return isinstance(value, str)


def positive_integer(text: str) -> int:
    """Return a positive integer parsed from text of the command line, or raise ArgumentTypeError."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be a positive integer, not {text!r}")
    return value


def positive_number(text: str, unit: str = "", below: float = MAX_RATE) -> float:
    """Return a number above 0 and below ``below`` parsed from text, or raise ArgumentTypeError.

    ``unit`` names the unit in the message.
    """
    try:
        value = float(text)
    except ValueError:
        value = 0
    if value >= below:
        raise argparse.ArgumentTypeError(f"must be a number{unit} below {below:g}, not {text!r}")
    if not value > 0:
        raise argparse.ArgumentTypeError(f"must be a number{unit} above 0, not {text!r}")
    return value


def pair(text: str, sizes: str) -> tuple[int, int]:
    """Return, as a pair, two positive integers parsed from text such as ``8x13``, or raise ArgumentTypeError.

    ``sizes`` names the two in the message, for example ``rows and columns``.
    """
    match = re.fullmatch(r"([1-9]\d{0,5})x([1-9]\d{0,5})", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"must be {sizes}, as in 8x13, not {text!r}")
    return int(match[1]), int(match[2])


def numbers(text: str, integers: bool = False) -> list[Any]:
    """Return a list of different ints or floats from a sweep's text, such as ``20,50:220:10`` (first:last:step).

    A range includes its last number if a step meets it. A wrong text or a repeated value raises ArgumentTypeError.
    """
    values: list[Any] = []
    for part in text.split(","):
        values += _range(part, integers)
        if len(values) > MAX_VALUES:
            raise argparse.ArgumentTypeError(f"has more than {MAX_VALUES:,} values: {text!r}")
    return different(values, text)


def _range(part: str, integers: bool) -> list[Any]:
    must_be = "positive integers" if integers else "numbers above 0"
    number_type: Callable[[Decimal], Any] = int if integers else float
    try:
        ends = [Decimal(end) for end in part.split(":")]
    except InvalidOperation:
        ends = []
    good = len(ends) in (1, 3) and all(end.is_finite() and SMALLEST <= end < 10**12 for end in ends)
    if not good or (integers and any(end != int(end) for end in ends)):
        raise argparse.ArgumentTypeError(
            f"must be {must_be}, or first:last:step of these, as in 50:220:10, not {part!r}"
        )
    if len(ends) == 1:
        return [number_type(ends[0])]
    first, last, step = ends
    if first > last:
        raise argparse.ArgumentTypeError(f"must go from the least to the greatest, first:last:step, not {part!r}")
    count = int((last - first) / step) + 1
    if count > MAX_VALUES:
        raise argparse.ArgumentTypeError(f"has more than {MAX_VALUES:,} values: {part!r}")
    return [number_type(first + index * step) for index in range(count)]


def different(values: list[Any], text: str) -> list[Any]:
    """Return a sweep's list of values unchanged, or raise ArgumentTypeError with ``text`` if a value repeats."""
    if len(set(values)) < len(values):
        raise argparse.ArgumentTypeError(f"has a value twice: {text!r}")
    return values


def _is_count(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1
