"""What a value consists of, as a short name: equal values have the same one in every process.

A name stands for the whole contents, so that what was made of a value can be found again by it.
"""

from __future__ import annotations

import dataclasses
import hashlib
from array import array
from collections.abc import Mapping, Sequence, Set
from enum import Enum
from functools import cache
from importlib import metadata
from pathlib import Path, PurePath
from typing import Any

import numpy as np

__all__ = ["of", "source"]

#: Packages whose versions change what hwgen makes.
PACKAGES = ("amaranth", "numpy", "onnx", "onnxruntime")


def of(*values: object) -> str:
    """The name of some values: 32 hexadecimal digits.

    Parameters
    ----------
    values
        Numbers, texts, bytes, arrays, enumerations, classes, functions of modules, dataclasses, and collections of
        such. Any other object must have its contents as bytes, or a digest of them, in an attribute ``digest``.

    Raises
    ------
    TypeError
        If a value is something else, of which nobody knows what it consists of.
    """
    return _Walk().of(values).hex()[:32]


@cache
def source() -> str:
    """The name of hwgen's own code, with the versions of the packages that it works with."""
    root = Path(__file__).resolve().parent
    files = {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*.py"))}
    return of(files, [metadata.version(package) for package in PACKAGES])


class _Walk:
    """Values that are met twice are looked into once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[bytes, object]] = {}

    def of(self, value: Any) -> bytes:
        if value is None or (isinstance(value, bool | int | float | complex) and type(value).__module__ == "builtins"):
            return _hash(type(value).__name__, repr(value).encode())
        if (known := self._known.get(id(value))) is not None:
            return known[0]
        found = _hash(*self._parts(value))
        self._known[id(value)] = found, value  # kept, so that no other value gets its address
        return found

    def _parts(self, value: Any) -> Sequence[str | bytes | memoryview]:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        if isinstance(value, Enum):
            return kind, value.name
        if isinstance(value, str | bytes | bytearray | memoryview | PurePath):
            return kind, str(value) if isinstance(value, str | PurePath) else bytes(value)
        if isinstance(value, np.ndarray | np.generic):
            return (
                "array",
                value.dtype.str,
                repr(value.shape),
                np.ascontiguousarray(value).reshape(-1).view(np.uint8).data,
            )
        if isinstance(value, array):
            return "array.array", value.typecode, value.tobytes()
        if isinstance(getattr(value, "digest", None), bytes):
            return kind, value.digest
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return kind, *(self.of(getattr(value, field.name)) for field in dataclasses.fields(value))
        return self._collection(kind, value)

    def _collection(self, kind: str, value: Any) -> Sequence[str | bytes]:
        if isinstance(value, tuple | list):
            if all(type(each) is int for each in value):
                return kind, repr(list(value))
            return kind, *map(self.of, value)
        if isinstance(value, Mapping):
            return kind, *(self.of(part) for item in value.items() for part in item)
        if isinstance(value, Set):
            return kind, *sorted(map(self.of, value))
        if isinstance(value, type) or (callable(value) and "<" not in getattr(value, "__qualname__", "<")):
            return kind, value.__module__, value.__qualname__
        raise TypeError(f"nobody knows what a {kind} consists of")


def _hash(*parts: str | bytes | memoryview) -> bytes:
    found = hashlib.sha256()
    for part in parts:
        found.update(hashlib.sha256(part.encode(errors="surrogatepass") if isinstance(part, str) else part).digest())
    return found.digest()
