"""Digests of Python values: equal values have the same digest in every process.

A digest covers the whole contents, so that a cache can find the result of a computation by the digest of its inputs.
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

#: Python packages whose versions can change hwgen's results.
PACKAGES = ("amaranth", "numpy", "onnx", "onnxruntime")


def of(*values: object) -> str:
    """Return the digest (32 hexadecimal digits) of Python values' contents, equal in every process.

    Parameters
    ----------
    values
        Numbers, texts, bytes, arrays, enumerations, classes, functions of modules, dataclasses, and collections of
        these. Any other object must have an attribute ``digest`` with its contents, or a digest of them, as bytes.

    Raises
    ------
    TypeError
        If the contents of a value are unknown.
    """
    return _Walk().of(values).hex()[:32]


@cache
def source() -> str:
    """Return the digest (32 hexadecimal digits) of hwgen's code and of the versions of `PACKAGES`."""
    root = Path(__file__).resolve().parent
    files = {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*.py"))}
    return of(files, [metadata.version(package) for package in PACKAGES])


class _Walk:
    """Computation of nested values' digests that visits an object only once even if it occurs several times."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[bytes, object]] = {}

    def of(self, value: Any) -> bytes:
        if value is None or (isinstance(value, bool | int | float | complex) and type(value).__module__ == "builtins"):
            return _hash(type(value).__name__, repr(value).encode())
        if (known := self._known.get(id(value))) is not None:
            return known[0]
        value_digest = _hash(*self._contents(value))
        self._known[id(value)] = value_digest, value  # kept, so that no other value gets its id
        return value_digest

    def _contents(self, value: Any) -> Sequence[str | bytes | memoryview]:
        type_name = f"{type(value).__module__}.{type(value).__qualname__}"
        if isinstance(value, Enum):
            return type_name, value.name
        if isinstance(value, str | bytes | bytearray | memoryview | PurePath):
            return type_name, str(value) if isinstance(value, str | PurePath) else bytes(value)
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
            return type_name, value.digest
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return type_name, *(self.of(getattr(value, field.name)) for field in dataclasses.fields(value))
        return self._collection(type_name, value)

    def _collection(self, type_name: str, value: Any) -> Sequence[str | bytes]:
        if isinstance(value, tuple | list):
            if all(type(entry) is int for entry in value):
                return type_name, repr(list(value))
            return type_name, *map(self.of, value)
        if isinstance(value, Mapping):
            return type_name, *(self.of(entry) for item in value.items() for entry in item)
        if isinstance(value, Set):
            return type_name, *sorted(map(self.of, value))
        if isinstance(value, type) or (callable(value) and "<" not in getattr(value, "__qualname__", "<")):
            return type_name, value.__module__, value.__qualname__
        raise TypeError(f"nobody knows what a {type_name} consists of")


def _hash(*contents: str | bytes | memoryview) -> bytes:
    combined = hashlib.sha256()
    for content in contents:
        combined.update(
            hashlib.sha256(content.encode(errors="surrogatepass") if isinstance(content, str) else content).digest()
        )
    return combined.digest()
