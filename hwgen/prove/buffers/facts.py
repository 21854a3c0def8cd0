"""Facts about a component's inner signals, each as a function of the counts of an observer."""

from __future__ import annotations

from collections.abc import Sequence

from hwgen.obligations.expressions import choice
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
        inner = memory if memory in self._site.module.instances else ""
        prefix = f"{inner}." if inner else ""
        name = "memory" if inner else memory
        size = bits_for(max(1, depth - 1))
        self.probes.setdefault(inner, []).extend(
            [
                f"wire {size} {memory}_probe_address;",
                f"wire [{width - 1}:0] {memory}_probe_word = {name}[{memory}_probe_address];",
            ]
        )
        self.sees[f"its_{memory}_word"] = f"{prefix}{memory}_probe_word"
        self.drives[f"{prefix}{memory}_probe_address"] = f"{address}{size}"
        return f"its_{memory}_word"
