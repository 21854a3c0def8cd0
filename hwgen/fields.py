"""Reading, checking and writing of JSON and TOML objects whose fields are declared as fields of a dataclass.

An `Entries` reads an object of a file. It reads a whole dataclass by the types of the dataclass's fields, and by a
`Rule` for a field that has limits, a key of another name, or a choice of texts (`entry`). `written` is the way back. A
wrong field is refused in one line that says where the field is, what it must be, and what the file has instead. An
error never quotes Python.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, NoReturn, TypeVar, get_args, get_origin, get_type_hints

from hwgen import frozen
from hwgen.errors import HwgenError, InputError

#: Default limit of the magnitude of an integer field: beyond every board, and small enough for arithmetic.
MAX_INTEGER = 1_000_000_000
#: Names for messages of the JSON types that correspond to Python's types.
_NAMES: dict[type, str] = {dict: "an object", list: "an array", str: "a string", int: "an integer"}
_NAMES |= {bool: "true or false", float: "a number"}
_SHOWN = 40

Record = TypeVar("Record")


class _Needed:
    """Type of the marker for "no default": a JSON field whose default is the marker must be present."""


_NEEDED = _Needed()


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Rule for the JSON value of a dataclass field, beyond its type: its key, limits, multiple or allowed values.

    Parameters
    ----------
    key : str
        Key of the JSON field, by default the field's name. ``unroll in`` is the key ``in`` of the object ``unroll``.
    minimum, maximum : int
        Limits of an integer, or of each integer in an array or an object.
    unit : int
        Number that an integer must be a multiple of.
    of : sequence
        Allowed values; all if empty.
    reason : str
        Why there are these limits, or these values, for messages.
    is_brief : bool
        Whether a value that equals the default is not written.
    inner_rules : mapping of str to Rule
        Rules for the fields of a nested object, by name, which replace the rules in the object's own class.
    """

    key: str = ""
    minimum: int = -MAX_INTEGER
    maximum: int = MAX_INTEGER
    unit: int = 1
    of: Sequence[Any] = ()
    reason: str = ""
    is_brief: bool = False
    inner_rules: Mapping[str, Rule] = field(default_factory=dict)


_RULE, _PLAIN = "rule", Rule()


def entry(default: Any = MISSING, *, default_factory: Any = MISSING, **rule: Any) -> Any:
    """Return a dataclass field whose JSON value must follow a `Rule` with the parameters ``rule`` (key, limits, ..)."""
    return field(default=default, default_factory=default_factory, metadata={_RULE: Rule(**rule)})


@cache
def _declared(record: type) -> dict[str, tuple[Any, Any, Rule]]:
    """Return a dict by name of the dataclass fields that JSON documents contain: tuples (type, default, `Rule`)."""
    types, parts = get_type_hints(record), [part for part in fields(record) if not frozen.is_never_digested(part)]
    return {part.name: (types[part.name], _default(part), part.metadata.get(_RULE, _PLAIN)) for part in parts}


def _default(part: Field[Any]) -> Any:
    if part.default_factory is not MISSING:
        return part.default_factory()
    return _NEEDED if part.default is MISSING else part.default


def written(record: Any, *, leave_out: Collection[str] = ()) -> dict[str, Any]:
    """Return a dataclass as a JSON object (a dictionary), without fields in ``leave_out`` or left out of digests."""
    document: dict[str, Any] = {}
    for part in fields(record):
        if part.name in leave_out or not frozen.is_digested(record, part):
            continue
        _, default, rule = _declared(type(record))[part.name]
        value = getattr(record, part.name)
        if not (rule.is_brief and value == default):
            *path, key = (rule.key or part.name).split()
            inner = document
            for outer in path:
                inner = inner.setdefault(outer, {})
            inner[key] = _jsonable(value)
    return document


def _jsonable(value: Any) -> Any:
    if is_dataclass(value):
        return written(value)
    if isinstance(value, tuple | list):
        return [_jsonable(item) for item in value]
    return {key: _jsonable(item) for key, item in value.items()} if isinstance(value, Mapping) else value


def content_of(path: Path, help: str, what: str = "") -> bytes:
    """Return the bytes of a file, or raise InputError, with the remedy ``help``, if it can't be read.

    The message calls the file ``what``.

    A path with a null character can't, either.
    """
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{what or path} can't be read: {reason}; {help}") from None


def parse(text: str | bytes, where: str, error: type[HwgenError] = InputError, help: str = "") -> Any:
    """Return the value of a JSON text; text that is not JSON, or objects with a key twice, raise ``error``.

    The message begins with ``where``, the name of the text, and ends with ``help``.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        if twice := [name for name in set(names) if names.count(name) > 1]:
            raise error(f"{where} has {' and '.join(map(shown, sorted(twice)))} twice{'; ' * bool(help)}{help}")
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as reason:
        why = f"{reason.msg} in line {reason.lineno}"
    except UnicodeDecodeError:
        why = "it is not UTF-8"
    except (ValueError, RecursionError):
        why = "a number is too long, or it is nested too deep"
    raise error(f"{where} is not JSON: {why}{'; ' * bool(help)}{help}")


def shown(value: Any) -> str:
    """Return a JSON value as text for a message, cut to 40 characters; an object or array is named by its type."""
    if isinstance(value, dict | list):
        return _NAMES[type(value)]
    try:
        plain = f"{value:,}" if type(value) is int else ""
        text = plain or json.dumps(value, default=lambda other: type(other).__name__)
    except ValueError:  # Python converts no integer of more than 4300 digits
        return "an integer that is too long"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def any_of(values: Iterable[Any]) -> str:
    """Return the allowed JSON values of a field as a list in words, for a message: ``"lut", "block" or null``."""
    *others, last = map(shown, values)
    return f"{', '.join(others)}{' or ' * bool(others)}{last}"


@dataclass(frozen=True)
class Entries:
    """Reader of one JSON or TOML object, which checks the fields that it reads and raises an error for a wrong one.

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
        """Return `Entries`: a reader of the JSON value ``value``; raise ``error`` if it is not an object."""
        reader = cls({}, where, error, help)
        if not isinstance(value, dict):
            reader.refuse(f"must be an object, not {shown(value)}")
        return cls(value, where, error, help)

    @classmethod
    def parsed(cls, text: str | bytes, where: str, error: type[HwgenError] = InputError, help: str = "") -> Entries:
        """Return `Entries`: a reader of the object in a JSON text; any other text raises ``error``."""
        return cls.of(parse(text, where, error, help), where, error, help)

    def refuse(self, why: str, key: str | None = None) -> NoReturn:
        """Raise the reader's error with the reason ``why``, for the JSON field ``key`` or for the whole object.

        With an empty ``key``, ``why`` is a whole sentence.
        """
        where = f"{self.where}:" if key is not None else self.where
        raise self.error(f"{' '.join(filter(None, (where, key, why)))}{'; ' * bool(self.help)}{self.help}")

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def only(self, known: Collection[str]) -> Entries:
        """Return this `Entries` reader if its JSON object only has the fields ``known``; else raise its error."""
        if unknown := sorted(set(self.values) - set(known)):
            self.refuse(f"has no {' and '.join(map(shown, unknown))}: it has {', '.join(sorted(known))}")
        return self

    def exact(self, record: type[Record]) -> Record:
        """Return an instance of the dataclass ``record`` read from the JSON object, which must have no other fields."""
        return self.only(_declared(record)).record(record)

    def record(self, record: type[Record], rules: Mapping[str, Rule] | None = None, **known: Any) -> Record:
        """Return an instance of the dataclass ``record`` read from the JSON object, or raise the reader's error.

        Parameters
        ----------
        record : type
            The dataclass. It can check its fields itself, and raise an error.
        rules : mapping of str to Rule, optional
            Rules that replace declared ones, by the field's name, such as limits that depend on another file.
        **known
            Values of fields that are not read.
        """
        values = {}
        for name, (value_type, default, rule) in _declared(record).items():
            if name not in known:
                rule = (rules or {}).get(name, rule)
                *path, key = (rule.key or name).split()
                inner = self
                for outer in path:
                    inner = replace(inner, values=inner.value(outer, dict))
                values[name] = inner.value(key, value_type, rule, default)
        try:
            return record(**values, **known)
        except HwgenError as error:
            self.refuse(str(error), "")

    def value(self, key: str, value_type: Any, rule: Rule = _PLAIN, default: Any = _NEEDED) -> Any:
        """Return the value of a JSON field, or ``default`` if it is missing; refuse a value not of ``value_type``.

        The type is ``str``, ``int``, ``bool``, ``float``, ``dict``, a dataclass, ``Any``, a tuple or mapping of such
        types, or a union of them. With the default ``None``, the value can be null.
        """
        value = self.values.get(key)
        if key not in self.values and default is _NEEDED:
            self.refuse(f"lacks {key!r}")
        if key not in self.values or (value is None and default is None):
            return default
        outer, inner = get_origin(value_type) or value_type, get_args(value_type)
        if outer is UnionType:
            types = [each for each in inner if each is not NoneType]
            return self.value(key, next((each for each in types if each is type(value)), types[0]), rule)
        if is_dataclass(outer):
            return self.entries(key).record(value_type, rule.inner_rules)
        if outer in (tuple, Sequence):
            return self._array(key, inner if outer is tuple else (*inner, ...), rule)
        if inner:
            within = self.entries(key)
            return {name: within.value(name, inner[-1], rule) for name in within.values}
        return self._value_of_type(key, value, outer, rule)

    def _array(self, key: str, types: tuple[Any, ...], rule: Rule) -> tuple[Any, ...]:
        """Return the values of an array field as a tuple, of the given types, or of one type if an ellipsis follows."""
        items = self._items(key)
        if types[-1] is Ellipsis:
            types = types[:1] * len(items.values)
        if len(types) != len(items.values):
            self.refuse(f"must be an array of {len(types)} entries, not of {len(items.values)}", key)
        return tuple(items.value(name, each, rule) for name, each in zip(items.values, types, strict=True))

    def _items(self, key: str) -> Entries:
        """Return `Entries`: a reader of an array field's items, each as a field ``key[0]``, ``key[1]``, and so on."""
        return replace(self, values={f"{key}[{index}]": item for index, item in enumerate(self.value(key, list))})

    def _value_of_type(self, key: str, value: Any, value_type: type, rule: Rule) -> Any:
        """Return a field's JSON value if it has the type ``value_type`` and follows the rule; otherwise, refuse it."""
        why = f" ({rule.reason})" * bool(rule.reason)
        if rule.of and value not in rule.of:
            self.refuse(f"must be {any_of(rule.of)}{why}, not {shown(value)}", key)
        if value_type is Any:
            return value
        types = (int, float) if value_type is float else (value_type,)
        if not isinstance(value, types) or isinstance(value, bool) != (value_type is bool):
            self.refuse(f"must be {_NAMES[value_type]}, not {shown(value)}", key)
        if value_type is int and not rule.minimum <= value <= rule.maximum:
            limits = f"{rule.minimum:,} to {rule.maximum:,}"
            if rule.maximum == MAX_INTEGER:
                limits = f"at least {rule.minimum:,}" if value < rule.minimum else f"at most {rule.maximum:,}"
            self.refuse(f"must be {limits}{why}, not {shown(value)}", key)
        if value_type is int and value % rule.unit:
            self.refuse(f"must be a multiple of {rule.unit}, not {shown(value)}", key)
        return self._finite(key, value) if value_type is float else value

    def _finite(self, key: str, value: float) -> float:
        try:
            real = float(value)
        except OverflowError:
            real = math.inf
        if not math.isfinite(real):
            self.refuse(f"must be a finite number, not {shown(value)}", key)
        return real

    def text(self, key: str, default: Any = _NEEDED, *, of: Sequence[str] = ()) -> Any:
        """Return the string in a JSON field, or ``default``; refuse one that is not in ``of``, if ``of`` is given."""
        return self.value(key, str, Rule(of=of), default)

    def integer(self, key: str, minimum: int = -MAX_INTEGER, maximum: int = MAX_INTEGER, default: Any = _NEEDED) -> Any:
        """Return the integer in a JSON field, or ``default``; refuse one below ``minimum`` or above ``maximum``."""
        return self.value(key, int, Rule(minimum=minimum, maximum=maximum), default)

    def entries(self, key: str, default: Any = _NEEDED, where: str = "") -> Entries:
        """Return `Entries`: a reader of the object in a JSON field, or of ``default``.

        Messages name its place ``where``, by default the field.
        """
        return replace(self, values=self.value(key, dict, default=default), where=where or f"{self.where}: {key}")

    def objects(self, key: str, where: str = "") -> list[Entries]:
        """Return a list with a reader of each object in a JSON field, which must be an array of objects."""
        items = self._items(key)
        return [
            Entries.of(item, where or f"{self.where}: {name}", self.error, self.help)
            for name, item in items.values.items()
        ]
