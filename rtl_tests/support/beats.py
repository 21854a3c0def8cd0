"""Writes of bus beats into the banked buffers of the engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def as_word(values: Sequence[int]) -> int:
    """Return bytes as a word, the first one lowest."""
    return sum((value & 0xFF) << 8 * place for place, value in enumerate(values))


def bus_beat(bank: int, word: int, *words: Sequence[int] | None) -> dict[str, Any]:
    """Return a beat whose first lane goes to a bank's word; a lane of ``None`` is absent."""
    present = sum(1 << lane for lane, values in enumerate(words) if values is not None)
    data = [0xDEAD_BEEF if values is None else as_word(values) for values in words]
    return {"bank": bank, "word": word, "present": present, "data": data}
