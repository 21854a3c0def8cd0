"""Facts about a component's inner signals, each as a function of the counts of an observer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwgen.obligations.expressions import choice
from hwgen.obligations.obligation import Obligation
from hwgen.obligations.observers import probed
from hwgen.obligations.site import Site, bits_for

__all__ = ["Facts"]


class Facts:
    """Facts about the inner signals of one component, which an observer's counts determine.

    Parameters
    ----------
    site : Site
        Site of the component.
    bits : int
        Width of the observer's signed wires, in bits.

    Attributes
    ----------
    observer : list of str
        Lines of Verilog.
    sees : dict of str to str
        Signals of the component that are read, by the name in the wrapper.
    facts : dict of str to str
        Invariants: a Verilog expression by the fact in words.
    probes : dict of str to list of str
        Lines that read the marked word's address in each memory, by instance.
    drives : dict of str to str
        Addresses of the probes.
    """

    def __init__(self, site: Site, bits: int) -> None:
        self._site, self._bits = site, bits
        self.observer: list[str] = []
        self.sees: dict[str, str] = {}
        self.facts: dict[str, str] = {}
        self.probes: dict[str, list[str]] = {}
        self.drives: dict[str, str] = {}

    def _wire(self, name: str, expression: str) -> None:
        """Add a signed wire of the observer, wide enough for all numbers."""
        self.observer.append(f"wire signed [{self._bits - 1}:0] {name} = {expression};")

    def _table(self, name: str, selector: str, entries: Sequence[int]) -> None:
        """Add a wire with the entry of a table of numbers."""
        self._wire(name, choice(selector, [self._number(entry) for entry in entries]))

    def _number(self, value: int) -> str:
        """Return a number as a signed Verilog constant that is as wide as the observer's wires."""
        return f"-{self._bits}'sd{-value}" if value < 0 else f"{self._bits}'sd{value}"

    def _is(self, signal: str, expression: str) -> None:
        """State that a counter of the component, where it was emitted, equals an expression, modulo its range."""
        if not self._site.has(signal):
            return
        width = self._site.module.signals[signal].width
        self.sees[f"its_{signal}"] = signal
        self._wire(f"expected_{signal}", expression)
        self.facts[f"{signal} follows from the counts"] = f"its_{signal} == expected_{signal}[{width - 1}:0]"

    def _modulo(self, name: str, expression: str, modulus: int, times: int) -> None:
        """Add a wire with an expression modulo ``modulus``, of which it is fewer than ``times``."""
        self._wire(f"{name}_sum", expression)
        wraps = [self._number(count * modulus) for count in range(times - 1, 0, -1)]
        over = [f"{name}_sum >= {wrap} ? {name}_sum - {wrap}" for wrap in wraps]
        self._wire(name, " : ".join([*over, f"{name}_sum"]))

    def _probe(self, memory: str, depth: int, width: int, address: str) -> str:
        """Add a probe that reads a memory of ``depth`` words of ``width`` bits at an address; return its word's name.

        A memory in block RAM is an instance, and the probe is in its module.
        """
        size = bits_for(max(1, depth - 1))
        probe = probed(self._site, **{memory: (max(2, depth), width, f"{address}{size}")})
        for inner, lines in probe["probes"].items():
            self.probes.setdefault(inner, []).extend(lines)
        self.sees |= probe["sees"]
        self.drives |= probe["drives"]
        return f"{memory}_word"

    def obligation(
        self,
        obligation_kind: str,
        statement: str,
        *,
        rules: dict[str, str],
        observer: Sequence[str],
        drives: dict[str, str],
        asserts: dict[str, str] | None = None,
        moves: Sequence[str] = (),
        **fields: Any,
    ) -> Obligation:
        """Return an obligation of the component: ``occupancy``, which proves the facts, or one that assumes them.

        ``observer`` has the lines before those of the facts, and ``moves`` those after them.
        """
        known = {} if obligation_kind == "occupancy" else {"rests_on": "occupancy"}
        return self._site.obligation(
            obligation_kind,
            statement,
            methods=("induction", "pdr"),
            observer=(*observer, *self.observer, *moves),
            sees=self.sees,
            assumes={**rules, **(self.facts if known else {})},
            asserts=asserts or self.facts,
            keeps=self._site.memories,
            probes=self.probes,
            drives={**drives, **self.drives},
            **known,
            **fields,
        )
