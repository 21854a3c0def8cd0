"""The accelerator: layers joined into one stream."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect

from hwgen.errors import ConfigError
from hwgen.gateware.cost import Resources
from hwgen.gateware.layer import Layer, LayerConfig
from hwgen.gateware.names import identifiers
from hwgen.gateware.stream import BeatFormat, Order, join


@dataclass(frozen=True, kw_only=True)
class AcceleratorConfig:
    """A fusion group as hardware.

    Parameters
    ----------
    name : str
        Of the top module.
    layers : tuple of LayerConfig
        In order; each takes the stream that the one before leaves.

    Raises
    ------
    ConfigError
        If there is no layer, or neighbours don't fit.
    """

    name: str
    layers: tuple[LayerConfig, ...]

    def __post_init__(self) -> None:
        if not self.layers:
            raise ConfigError("layers must be at least one, not ()")
        for before, after in pairwise(self.layers):
            if before.output != after.window.input:
                raise ConfigError(
                    f"{after.name}: input must be {before.name}'s output {before.output}, not {after.window.input}"
                )

    @property
    def input(self) -> BeatFormat:
        return self.layers[0].window.input

    @property
    def output(self) -> BeatFormat:
        return self.layers[-1].output

    @property
    def taps(self) -> tuple[BeatFormat, ...]:
        """The streams that the layers leave, in order."""
        return tuple(layer.output for layer in self.layers)

    @property
    def start_up(self) -> int:
        """Cycles after a reset before the first beat can be taken."""
        return self.layers[0].start_up

    @property
    def input_order(self) -> Order:
        """In which order the pixels of the input come."""
        return self.layers[0].input_order

    @property
    def output_order(self) -> Order:
        """In which order the pixels of the output leave."""
        return self.tap_orders[-1]

    @property
    def tap_orders(self) -> tuple[Order, ...]:
        """In which order the pixels of ``taps`` travel."""
        return tuple(layer.output_order for layer in self.layers)

    @property
    def multipliers(self) -> int:
        return sum(layer.multipliers for layer in self.layers)

    @property
    def resources(self) -> Resources:
        """What all layers together take of a device, as estimated."""
        return sum((layer.resources for layer in self.layers), Resources())


class Accelerator(wiring.Component):
    """All layers of a fusion group, computed together; nothing in between leaves the chip.

    Parameters
    ----------
    config : AcceleratorConfig
    taps : bool
        Let every layer's output be watched (to find where a difference begins).

    Members
    -------
    i : In(stream)
        Frames, one after the other.
    o : Out(stream)
        Their results in the same order.
    tap_N : Out
        With ``taps``: ``payload`` and ``valid`` of layer ``N``'s output, valid in the cycle of a transfer; ``busy`` in
        each cycle in which its arithmetic takes a step.

    Reset
        Drops what is in flight; the next beat is the first of a frame.
    """

    def __init__(self, config: AcceleratorConfig, *, taps: bool = False):
        self._config = config
        members = {"i": In(config.input.signature), "o": Out(config.output.signature)}
        self._taps = [f"tap_{number}" for number in range(len(config.layers))] if taps else []
        for name, beat in zip(self._taps, config.taps, strict=False):
            members[name] = Out(wiring.Signature({"payload": Out(beat.layout), "valid": Out(1), "busy": Out(1)}))
        super().__init__(members)

    @property
    def config(self) -> AcceleratorConfig:
        return self._config

    def elaborate(self, platform):
        m = Module()
        watched = bool(self._taps)
        layers = [Layer(layer, busy=watched) for layer in self.config.layers]
        for name, layer in zip(identifiers(layer.name for layer in self.config.layers), layers, strict=True):
            m.submodules[name] = layer
        connect(m, accelerator=wiring.flipped(self.i), layer=layers[0].i)
        for before, after in pairwise(layers):
            join(m, source=before.o, sink=after.i)
        connect(m, layer=layers[-1].o, accelerator=wiring.flipped(self.o))
        for name, layer in zip(self._taps, layers, strict=False):
            tap = getattr(self, name)
            m.d.comb += [
                tap.payload.eq(layer.o.payload),
                tap.valid.eq(layer.o.valid & layer.o.ready),
                tap.busy.eq(layer.busy),
            ]
        return m
