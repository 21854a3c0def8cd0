"""Small memory for words of a feature map that are used several times, in layers without a line buffer."""

from __future__ import annotations

from amaranth import Module, Signal, Value

from hwgen.devices import Device
from hwgen.gateware.cost import Cost, counter_bits
from hwgen.gateware.lookup import delayed, ram, read_port, write_port

#: Read latency of the memory that `add_memory` adds, from an address to its word, in cycles.
LATENCY = 2


def add_memory(m: Module, device: Device, name: str, depth: int, word: Value, address: Value, write: Value) -> Value:
    """Add a memory of ``depth`` words that stores ``word`` if ``write``; return a `Value`: word at ``address``.

    The returned word is two cycles later, and is ``word`` if it was just written. It reads one address per cycle, in
    any order.
    """
    if depth == 1:
        kept = Signal(len(word), name=f"{name}_stored", reset_less=True)
        with m.If(write):
            m.d.sync += kept.eq(word)
        return delayed(m, f"{name}_word", kept, LATENCY - 1)
    m.submodules[name] = words = ram(device, len(word), depth)
    to, of = write_port(words), read_port(words)
    m.d.comb += [
        to.addr.eq(address),
        to.data.eq(word),
        to.en.eq(write),
        of.addr.eq(delayed(m, f"{name}_read_address", address, 1)),
    ]
    return of.data


def add_memory_cost(cost: Cost, bits: int, depth: int) -> None:
    """Add to ``cost`` the resources of an `add_memory` of ``depth`` words of ``bits`` bits."""
    cost.ram(bits, depth)
    cost.ff += counter_bits(depth)
