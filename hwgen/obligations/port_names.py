"""Names of emitted Verilog ports that carry part of a signal: some adjacent fields, or a slice of bits."""

from __future__ import annotations

from collections.abc import Sequence


def name_of_fields(signal: str, fields: Sequence[str]) -> str:
    """Return the name of the emitted port that carries some adjacent fields of a signal, given lowest first."""
    words = list(fields) if len(fields) < 3 else [fields[0], "to", fields[-1]]
    return f"{signal}__{'_'.join(words)}"


def name_of_slice(signal: str, low: int, width: int) -> str:
    """Return the name of the emitted port that carries ``width`` bits of a signal, starting at bit ``low``."""
    return f"{signal}_{low}" if width == 1 else f"{signal}_{low + width - 1}_{low}"
