"""Obligation ``reset`` (property to prove): a reset gives each register that has a reset its value at power-up.

All other registers, and memories, start with any value in every proof (`hwgen.prove.wrapper`). Therefore each property
holds after a reset as it holds after power-up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hwgen.obligations.obligation import Obligation, Site


def obligations(config: Any, site: Site) -> list[Obligation]:
    """Return a list with the `Obligation` that a reset restores a component's registers; empty without a reset."""
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


def of_arithmetic(_layer: Any, site: Site) -> list[Obligation]:
    """Return a list of obligations (to prove on the netlist): a reset restores the registers of a layer's arithmetic.

    Most of these registers say which results are valid, and which weights and channels come next. Registers of data
    have no reset if a result without ``valid`` is used nowhere. The netlist shows what a reset does, and sums stay
    words.
    """
    parts = [inner for name in ("compute", "finish") if (inner := site.inner(name)) is not None]
    return [
        inner.obligation(
            "reset",
            "A reset gives each register that has one its value at power-up; registers of data have none.",
            methods=("structure",),
            structure={"reset": {name: _digits(value) for name, value in inner.module.reset_values.items()}},
        )
        for part in parts
        for inner in _inner_sites(part)
        if inner.module.reset_values
    ]


def _digits(value: str) -> str:
    """Return the binary digits of a Verilog number such as ``5'd3`` or ``17'h10000``."""
    width, _, number = value.partition("'")
    return f"{int(number[1:], {'d': 10, 'h': 16, 'b': 2}[number[0]]):0{width}b}"


def _inner_sites(site: Site) -> Iterator[Site]:
    """Yield a site (instance of an emitted module) and all inside it, except modules with Verilog parameters."""
    yield site
    for instance, module in site.module.instances.items():
        inner = site.modules.get(module)
        if inner is not None and not inner.has_parameters:
            yield from _inner_sites(Site(f"{site.path}.{instance}", inner, site.modules))
