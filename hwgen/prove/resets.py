"""Obligation ``reset``: a reset gives each register that has a reset its value at power-up.

All other registers, and memories, begin with any value in every proof (`hwgen.prove.wrapper`). So each property holds
after a reset as it holds after power-up.
"""

from __future__ import annotations

from typing import Any

from hwgen.prove.obligation import Obligation
from hwgen.prove.site import Site

__all__ = ["obligations"]


def obligations(config: Any, site: Site) -> list[Obligation]:
    """Return the obligation of a component's registers; none for a component without a reset."""
    values = site.module.reset_values
    if not values:
        return []
    return [
        site.obligation(
            "reset",
            "After a reset, all registers have their values at power-up, or values that no property depends on.",
            methods=("pdr",),
            observer=("reg was_reset = 0;", "always @(posedge clk) was_reset <= rst;"),
            sees={f"seen_{name}": name for name in values},
            asserts={f"{name} is reset": f"!was_reset | (seen_{name} == {value})" for name, value in values.items()},
            # Resets are never high in a search for a cover, so the cover is that a register leaves its reset value.
            cover=" | ".join(f"(seen_{name} != {value})" for name, value in values.items()),
            free_memories=True,
        )
    ]
