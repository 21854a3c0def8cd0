"""Names of classes and fields as digests have them, which outlive a change of the Python name.

Digests of engines and of designs with weights at run time are in the hands of users: in circuits, programs and files of
weights. So a class or a field that is renamed keeps its old name here, as its *frozen name*::

    @dataclass(frozen=True)
    class BeatFormat:  # StreamFormat until 0.2
        FROZEN_NAME = "StreamFormat"
        channels: int = field(metadata=frozen("depth"))  # depth until 0.2
"""

from __future__ import annotations

from dataclasses import Field, fields, is_dataclass
from typing import Any

__all__ = ["class_name", "field_name", "frozen", "text"]

_KEY = "frozen_name"


def frozen(name: str) -> dict[str, str]:
    """Return the metadata that give a dataclass field its frozen name."""
    return {_KEY: name}


def field_name(field: Field[Any]) -> str:
    """Return the frozen name of a dataclass field: its Python name, unless it was renamed."""
    return field.metadata.get(_KEY, field.name)


def class_name(kind: type) -> str:
    """Return the frozen name of a class: its Python name, unless it was renamed. Subclasses don't inherit it."""
    return vars(kind).get("FROZEN_NAME", kind.__qualname__)


def text(value: Any) -> str:
    """Return the ``repr`` of a value with the frozen names of all dataclasses and fields in it."""
    if type(value) is tuple:
        return f"({', '.join(map(text, value))}{',' * (len(value) == 1)})"
    if type(value) is list:
        return f"[{', '.join(map(text, value))}]"
    if type(value) is dict:
        return f"{{{', '.join(f'{text(key)}: {text(entry)}' for key, entry in value.items())}}}"
    if is_dataclass(value) and not isinstance(value, type) and _has_generated_repr(value):
        entries = (f"{field_name(field)}={text(getattr(value, field.name))}" for field in fields(value) if field.repr)
        return f"{class_name(type(value))}({', '.join(entries)})"
    return repr(value)


def _has_generated_repr(value: object) -> bool:
    """Whether the ``repr`` of a dataclass is the one that ``dataclass`` made, which wraps a function."""
    return hasattr(type(value).__repr__, "__wrapped__")
