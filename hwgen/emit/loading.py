"""Amaranth module that loads other weights into a built design after reset, to simulate a retrained model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from struct import iter_unpack
from typing import Any

from amaranth import ClockSignal, Const, Instance, Module, Mux, ResetSignal, Signal, unsigned
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.guard import FRAME_ERROR
from hwgen.gateware.load.loaded_memory import PART_BITS
from hwgen.gateware.lookup import rom_attributes
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
    top : str
        Name of the accelerator's module, whose Verilog is a separate file.
    """

    inner: AcceleratorConfig
    load: bytes
    top: str

    @property
    def name(self) -> str:
        return f"{self.inner.name}_loading"

    @property
    def layers(self) -> Sequence[Any]:
        return self.inner.layers

    @property
    def input(self) -> BeatFormat:
        return self.inner.input

    @property
    def output(self) -> BeatFormat:
        return self.inner.output

    @property
    def input_order(self) -> Order:
        return self.inner.input_order

    @property
    def output_order(self) -> Order:
        return self.inner.output_order

    @property
    def input_ports(self) -> tuple[Port, ...]:
        return self.inner.input_ports

    @property
    def output_ports(self) -> tuple[Port, ...]:
        """Output streams of the module, equal to the accelerator's (name, beat format, pixel order)."""
        return self.inner.output_ports

    @property
    def error_ports(self) -> tuple[str, ...]:
        """Names of the module's error ports, equal to the accelerator's."""
        return self.inner.error_ports

    @cached_property
    def words(self) -> list[int]:
        """Words of the weights packet that the module sends to the accelerator, as 32-bit integers."""
        return [word for (word,) in iter_unpack("<I", self.load)]

    def component(self) -> Loading:
        """Return the Amaranth component with this configuration."""
        return Loading(self)


class Loading(ConfiguredComponent[LoadingConfig]):
    """Module that loads an accelerator's weights after reset, and lets frames wait until the weights are loaded.

    Parameters
    ----------
    config : LoadingConfig
        Configuration of the module.

    Members
    -------
    i, o, frame_error : In(stream), Out(stream), Out
        Ports of the accelerator, under the same names.
    """

    def __init__(self, config: LoadingConfig):
        members: dict[str, wiring.Member] = {port.name: In(port.beat.signature) for port in config.input_ports}
        members |= {name: Out(FRAME_ERROR) for name in config.error_ports}
        super().__init__(config, members | {port.name: Out(port.beat.signature) for port in config.output_ports})

    def elaborate(self, platform):
        m = Module()
        words, ready, good = self.config.words, Signal(name="weights_ready"), Signal(name="weights_good")
        word_index = Signal(range(len(words) + 1), name="word_index")
        m.submodules.words = rom = memory.Memory(
            shape=unsigned(PART_BITS), depth=len(words), init=words, attrs=rom_attributes(len(words))
        )
        word = rom.read_port()
        # The ROM reads a word one cycle before the word is offered.
        begun, next_index = Signal(name="has_begun"), Signal.like(word_index, name="next_word_index")
        offered = begun & (word_index != len(words))
        m.d.comb += next_index.eq(Mux(offered & ready, word_index + 1, word_index))
        m.d.comb += word.addr.eq(next_index)
        m.d.sync += [begun.eq(1), word_index.eq(next_index)]
        loaded = Signal(name="is_loaded")
        m.d.sync += loaded.eq(loaded | (word_index == len(words)) & good)
        ports: dict[str, Any] = {
            "i_clk": ClockSignal(),
            "i_rst": ResetSignal(),
            "i_weights__payload": word.data | ((word_index == len(words) - 1) << PART_BITS),
            "i_weights__valid": offered,
            "o_weights__ready": ready,
            "o_weights_state__good": good,
            "i_weights_state__clear": Const(0, 1),
        }
        for name in self.config.error_ports:
            error = getattr(self, name)
            ports |= {f"i_{name}__clear": error.clear, f"o_{name}__short": error.short, f"o_{name}__long": error.long}
        for port in self.config.input_ports:
            stream, taken = getattr(self, port.name), Signal(name=f"{port.name}_inner_ready")
            m.d.comb += stream.ready.eq(taken & loaded)
            ports |= {
                f"i_{port.name}__payload": stream.payload.as_value(),
                f"i_{port.name}__valid": stream.valid & loaded,
                f"o_{port.name}__ready": taken,
            }
        for port in self.config.output_ports:
            stream = getattr(self, port.name)
            ports |= {
                f"o_{port.name}__payload": stream.payload.as_value(),
                f"o_{port.name}__valid": stream.valid,
                f"i_{port.name}__ready": stream.ready,
            }
        m.submodules.accelerator = Instance(self.config.top, **ports)
        return m
