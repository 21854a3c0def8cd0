"""Digest of a design's hardware, and the 32-bit words that load a model's weights into this hardware.

The digest describes only the hardware: two models with the same layers have the same digest, whatever their weights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from hwgen import frozen

#: Maximum number of characters of a configuration field's text in a hardware description; a longer text is replaced by
#: its SHA-256 digest.
MAX_TEXT_LENGTH = 80


def words_of(layers: Sequence[Any]) -> list[int]:
    """Return the list of 32-bit words that load the weights and constants of all layers, in the load chain's order."""
    return [
        word
        for layer in layers
        for store, contents in zip(layer.stores, layer.stored_contents, strict=True)
        for word in store.cut(contents)
    ]


def fields_of(config: Any) -> dict[str, str]:
    """Return a dict from path, such as ``compute.window.pad_value``, to a layer configuration's field as text."""
    return dict(_fields(config, ""))


def _fields(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if is_dataclass(value):
        for field in fields(value):
            if not frozen.is_digested(value, field):
                continue
            name = frozen.field_name(field)
            yield from _fields(getattr(value, field.name), f"{path}.{name}" if path else name)
        return
    text = frozen.text(value)
    yield path, text if len(text) <= MAX_TEXT_LENGTH else f"SHA-256 {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def describe(layers: Sequence[Any], sources: Any, outputs: Any) -> dict[str, dict[str, str]]:
    """Return a design's hardware as a nested dict, layer name to field path to value as text, without loaded weights.

    The entry ``""`` describes the connections of the layers.
    """
    joined = {"sources": frozen.text(sources), "outputs": frozen.text(outputs)}
    return {"": joined} | {layer.name: fields_of(layer.blank) for layer in layers}


def digest_of(description: dict[str, dict[str, str]]) -> int:
    """Return the 64-bit digest of a hardware description; a loader refuses weights with another digest."""
    return int.from_bytes(hashlib.sha256(repr(description).encode()).digest()[:8], "little")
