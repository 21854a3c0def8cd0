"""Frozen names: the names of classes and fields in digests, which stay when the Python name changes.

Users hold digests of engines and of designs with weights at run time, in circuits, programs and files of weights.
Therefore a renamed class or field keeps its old name as its *frozen name*::

    @dataclass(frozen=True)
    class BeatFormat:  # StreamFormat until 0.2
        FROZEN_NAME = "StreamFormat"
        channels: int = field(metadata=frozen("depth"))  # depth until 0.2
"""

from __future__ import annotations

from dataclasses import Field, fields, is_dataclass
from typing import Any

_KEY, _ADDED, _NEVER = "frozen_name", "added", "never_digested"


def frozen(name: str) -> dict[str, str]:
    """Return metadata (a dict) for a renamed dataclass field, so that digests still use its former name ``name``."""
    return {_KEY: name}


def added() -> dict[str, bool]:
    """Return metadata (a dict) for a dataclass field added later, left out of digests while it has its default."""
    return {_ADDED: True}


def never_digested() -> dict[str, bool]:
    """Return metadata (a dict) for a dataclass field that digests leave out: no program or weights file needs it."""
    return {_NEVER: True}


def field_name(field: Field[Any]) -> str:
    """Return the name of a dataclass field in digests: its Python name, or its old one if it was renamed."""
    return field.metadata.get(_KEY, field.name)


def is_never_digested(field: Field[Any]) -> bool:
    """Return whether a dataclass field is left out of all digests and JSON documents."""
    return _NEVER in field.metadata


def is_digested(value: Any, field: Field[Any]) -> bool:
    """Return whether digests include a field of the dataclass ``value``: not if new with its default, or excluded.

    `added` marks a new field, `never_digested` one that is always left out.
    """
    if is_never_digested(field):
        return False
    return not field.metadata.get(_ADDED) or getattr(value, field.name) != field.default


def class_name(cls: type) -> str:
    """Return the name of a class in digests: its Python name, or its old one, ``FROZEN_NAME``, if it was renamed.

    Subclasses don't inherit the old name.
    """
    return vars(cls).get("FROZEN_NAME", cls.__qualname__)


def text(value: Any) -> str:
    """Return the ``repr`` of a value for a digest, with old names of renamed dataclasses and fields in the value."""
    if type(value) is tuple:
        return f"({', '.join(map(text, value))}{',' * (len(value) == 1)})"
    if type(value) is list:
        return f"[{', '.join(map(text, value))}]"
    if type(value) is dict:
        return f"{{{', '.join(f'{text(key)}: {text(entry)}' for key, entry in value.items())}}}"
    if is_dataclass(value) and not isinstance(value, type) and hasattr(type(value).__repr__, "__wrapped__"):
        entries = (
            f"{field_name(field)}={text(getattr(value, field.name))}"
            for field in fields(value)
            if field.repr and is_digested(value, field)
        )
        return f"{class_name(type(value))}({', '.join(entries)})"
    return repr(value)
