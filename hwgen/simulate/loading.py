"""Amaranth module that loads an accelerator's weights after reset, for simulation.

It simulates a retrained model on a built design, and a design whose memories begin without weights (UltraRAM).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from struct import iter_unpack
from typing import Any

from amaranth import ClockSignal, Instance, Module, Mux, ResetSignal, Signal, Value, unsigned
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, connect

from hwgen.gateware.accelerator import Accelerator, AcceleratorConfig
from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.load.loaded_memory import PART_BITS
from hwgen.gateware.stream import BeatFormat, Order, Port


@dataclass(frozen=True)
class LoadingConfig:
    """Configuration of a module, for simulation, that loads an accelerator's weights after reset.

    The module has the ports of the accelerator, and accepts frames as soon as the weights are loaded.

    Parameters
    ----------
    inner : AcceleratorConfig
        Configuration of the accelerator.
    load : bytes
        Packet of weights, as 32-bit words, lowest byte first.
    top : str, optional
        Name of the accelerator's module, whose Verilog is a separate file. If not given, the module contains the
        accelerator.
    """

    inner: AcceleratorConfig
    load: bytes
    top: str | None = None

    @property
    def name(self) -> str:
        """Name of the module that loads the weights: the accelerator's name with ``_loading``."""
        return f"{self.inner.name}_loading"

    @property
    def layers(self) -> Sequence[Any]:
        """Sequence of configurations of the accelerator's layers."""
        return self.inner.layers

    @property
    def input(self) -> BeatFormat:
        """Beat format (`BeatFormat`) of the accelerator's input stream."""
        return self.inner.input

    @property
    def output(self) -> BeatFormat:
        """Beat format (`BeatFormat`) of the accelerator's output stream."""
        return self.inner.output

    @property
    def input_order(self) -> Order:
        """Pixel order (`Order`) of the accelerator's input stream."""
        return self.inner.input_order

    @property
    def output_order(self) -> Order:
        """Pixel order (`Order`) of the accelerator's output stream."""
        return self.inner.output_order

    @property
    def input_ports(self) -> tuple[Port, ...]:
        """Tuple of each input's `Port` (name, beat format, pixel order), equal to the accelerator's."""
        return self.inner.input_ports

    @property
    def output_ports(self) -> tuple[Port, ...]:
        """Tuple of each output's `Port` (name, beat format, pixel order), equal to the accelerator's."""
        return self.inner.output_ports

    @property
    def error_ports(self) -> tuple[str, ...]:
        """Tuple of names of the module's error ports, equal to the accelerator's."""
        return self.inner.error_ports

    @property
    def taps(self) -> tuple[BeatFormat, ...]:
        """Tuple of the `BeatFormat` of each layer's output stream (to its first reader), in layer order."""
        return self.inner.taps

    @property
    def tap_orders(self) -> tuple[Order, ...]:
        """Tuple of the pixel `Order` of each layer's output stream, in layer order."""
        return self.inner.tap_orders

    @property
    def path(self) -> str:
        """Path to the accelerator's instance in the module's Verilog, a dot after each name: ``accelerator.``."""
        return "accelerator." if self.top is None else "accelerator.existing."

    @property
    def load_cycles(self) -> int:
        """Number of cycles that the module needs to send the weights, one 32-bit word per cycle."""
        return len(self.words)

    @cached_property
    def words(self) -> list[int]:
        """Words of the weight packet that the module sends, as a list of 32-bit integers."""
        return [word for (word,) in iter_unpack("<I", self.load)]

    def component(self) -> Loading:
        """Return a `Loading`: the Amaranth component that loads weights, with this configuration."""
        return Loading(self)


class Loading(ConfiguredComponent[LoadingConfig]):
    """Module that loads an accelerator's weights after reset, and lets frames wait until the weights are loaded.

    Parameters
    ----------
    config : LoadingConfig
        Configuration of the module.
    taps : bool
        Whether the accelerator's layers can be observed, for an accelerator that the module contains.

    Members
    -------
    i, o, frame_error, tap_N : In(stream), Out(stream), Out, Out
        Ports of the accelerator, under the same names.
    """

    def __init__(self, config: LoadingConfig, *, taps: bool = False):
        self._accelerator: Any = (
            Accelerator(config.inner, taps=taps)
            if config.top is None
            else _Existing(config.top, wiring.Signature(config.inner.ports))
        )
        members = self._accelerator.signature.members
        super().__init__(config, {name: members[name] for name in members if not name.startswith("weights")})

    def elaborate(self, platform):
        m = Module()
        m.submodules.accelerator = accelerator = self._accelerator
        state = accelerator.weights_state
        words = self.config.words
        word_index = Signal(range(len(words) + 1), name="word_index")
        m.submodules.words = rom = memory.Memory(
            shape=unsigned(PART_BITS),
            depth=len(words),
            init=words,
            attrs=self.config.inner.device.memories.rom_style(len(words)),
        )
        word = rom.read_port()
        # The ROM reads a word one cycle before the word is valid.
        begun, next_index = Signal(name="has_begun"), Signal.like(word_index, name="next_word_index")
        offered = begun & (word_index != len(words))
        m.d.comb += next_index.eq(Mux(offered & accelerator.weights.ready, word_index + 1, word_index))
        m.d.comb += [
            word.addr.eq(next_index),
            accelerator.weights.valid.eq(offered),
            accelerator.weights.payload.data.eq(word.data),
            accelerator.weights.payload.last.eq(word_index == len(words) - 1),
        ]
        m.d.sync += [begun.eq(1), word_index.eq(next_index)]
        loaded = Signal(name="is_loaded")
        m.d.sync += loaded.eq(loaded | (word_index == len(words)) & state.good)
        inputs = {port.name for port in self.config.input_ports}
        for name in self.signature.members:
            port = getattr(self, name)
            if name not in inputs:
                connect(m, inside=getattr(accelerator, name), outside=wiring.flipped(port))
                continue
            sink = getattr(accelerator, name)
            m.d.comb += [
                sink.payload.eq(port.payload),
                sink.valid.eq(port.valid & loaded),
                port.ready.eq(sink.ready & loaded),
            ]
        return m


class _Existing(wiring.Component):
    """Accelerator whose Verilog is a separate file: an instance of its module with the accelerator's signature.

    Parameters
    ----------
    top : str
        Name of the accelerator's module.
    signature : wiring.Signature
        Signature of the accelerator.
    """

    def __init__(self, top: str, signature: wiring.Signature):
        self._top = top
        super().__init__(signature)

    def elaborate(self, platform):
        m = Module()
        ports: dict[str, Any] = {"i_clk": ClockSignal(), "i_rst": ResetSignal()}
        for path, member, value in self.signature.flatten(self):
            ports[f"{'i' if member.flow is In else 'o'}_{'__'.join(map(str, path))}"] = Value.cast(value)
        m.submodules.existing = Instance(self._top, **ports)
        return m
