"""What a design is apart from what is loaded into it, and the words of a load.

A design's digest is of the hardware alone: two models of one shape have the same, whatever their weights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from hwgen import frozen

#: Characters of a field's text at most; of longer ones there is a digest.
LONGEST = 80


def words_of(layers: Sequence[Any]) -> list[int]:
    """The words that load what the layers' configurations hold, in the order of the chain."""
    return [
        word
        for layer in layers
        for store, contents in zip(layer.stores, layer.stored_contents, strict=True)
        for word in store.cut(contents)
    ]


def fields_of(config: Any) -> dict[str, str]:
    """All that a configuration says, by the path of each field, ``compute.window.pad_value``."""
    return dict(_fields(config, ""))


def _fields(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if is_dataclass(value):
        for field in fields(value):
            name = frozen.field_name(field)
            yield from _fields(getattr(value, field.name), f"{path}.{name}" if path else name)
        return
    text = frozen.text(value)
    yield path, text if len(text) <= LONGEST else f"SHA-256 {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def describe(layers: Sequence[Any], sources: Any, outputs: Any) -> dict[str, dict[str, str]]:
    """The hardware but for what is loaded: the fields of each layer, by its name; how they are joined under ``""``."""
    joined = {"sources": frozen.text(sources), "outputs": frozen.text(outputs)}
    return {"": joined} | {layer.name: fields_of(layer.blank) for layer in layers}


def digest_of(description: dict[str, dict[str, str]]) -> int:
    """64 bits of a description."""
    return int.from_bytes(hashlib.sha256(repr(description).encode()).digest()[:8], "little")
