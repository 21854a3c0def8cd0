"""The accelerator: layers joined by streams, a chain or a graph of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TypeVar

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect

from hwgen.errors import ConfigError
from hwgen.gateware.cost import Resources
from hwgen.gateware.layer import Layer, LayerConfig
from hwgen.gateware.names import identifiers
from hwgen.gateware.stream import BeatFormat, Order, join

T = TypeVar("T")

#: The accelerator's input among the sources of a layer.
SOURCE = -1


@dataclass(frozen=True)
class Link:
    """A stream from one of a layer's FIFOs into a layer, or out of the accelerator.

    Parameters
    ----------
    source, output : int
        The layer that it leaves, and which of its FIFOs.
    sink, place : int
        The layer that it enters, and which of its inputs; the number of layers for the accelerator's output.
    """

    source: int
    output: int
    sink: int
    place: int


@dataclass(frozen=True, kw_only=True)
class AcceleratorConfig:
    """A fusion group as hardware.

    Parameters
    ----------
    name : str
        Of the top module.
    layers : tuple of LayerConfig
        In topological order; the last one gives the accelerator's output.
    sources : tuple of tuple of int, optional
        For each layer the numbers of the layers whose outputs it takes, in the order of its inputs; `SOURCE` is the
        accelerator's input, which the first layer alone takes. If not given, the layers are a chain.

    Raises
    ------
    ConfigError
        If there is no layer, a layer takes what is not before it, a FIFO has no reader, or neighbours don't fit.
    """

    name: str
    layers: tuple[LayerConfig, ...]
    sources: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if not self.layers:
            raise ConfigError("layers must be at least one, not ()")
        if not self.sources:
            object.__setattr__(self, "sources", tuple((number - 1,) for number in range(len(self.layers))))
        self._check_sources()
        for link in self.links[:-1]:
            before, after = self.layers[link.source], self.layers[link.sink]
            given, taken = before.outputs[link.output], after.inputs[link.place]
            if given != taken:
                raise ConfigError(f"{after.name}: input must be {before.name}'s output {given}, not {taken}")

    def _check_sources(self) -> None:
        if len(self.sources) != len(self.layers):
            raise ConfigError(f"sources must be given for each of {len(self.layers)} layers, not {self.sources}")
        for number, (layer, sources) in enumerate(zip(self.layers, self.sources, strict=True)):
            if len(sources) != len(layer.inputs) or not all(SOURCE <= source < number for source in sources):
                raise ConfigError(f"{layer.name}: sources must be {len(layer.inputs)} layers before it, not {sources}")
        if [sources for sources in self.sources if SOURCE in sources] != [(SOURCE,)]:
            raise ConfigError("the input must be taken once, by the first layer alone")
        readers = [0] * (len(self.layers) - 1) + [1]
        for source in (source for sources in self.sources for source in sources if source != SOURCE):
            readers[source] += 1
        for layer, count in zip(self.layers, readers, strict=True):
            if count != len(layer.outputs):
                raise ConfigError(f"{layer.name}: outputs must be {count}, one for each reader, not {layer.outputs}")

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """What each FIFO leads to, layer by layer, those of a layer in the order of their readers."""
        readers: list[list[tuple[int, int]]] = [[] for _ in self.layers]
        for sink, sources in enumerate(self.sources):
            for place, source in enumerate(sources):
                if source != SOURCE:
                    readers[source].append((sink, place))
        readers[-1].append((len(self.layers), 0))
        return tuple(
            Link(source, output, *reader) for source, found in enumerate(readers) for output, reader in enumerate(found)
        )

    @property
    def fifo_depths(self) -> list[int]:
        """Depths of all FIFOs, in the order of ``links``."""
        return [depth for layer in self.layers for depth in layer.fifo_depths]

    def by_layer(self, of_fifos: Sequence[T]) -> list[tuple[T, ...]]:
        """What is said of each FIFO, layer by layer."""
        rest = iter(of_fifos)
        return [tuple(islice(rest, len(layer.outputs))) for layer in self.layers]

    @property
    def is_chain(self) -> bool:
        """Whether each layer takes just the output of the one before."""
        return all(sources == (number - 1,) for number, sources in enumerate(self.sources))

    @property
    def input(self) -> BeatFormat:
        return self.layers[0].inputs[0]

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
        With ``taps``: ``payload`` and ``valid`` of layer ``N``'s output to its first reader, valid in the cycle of a
        transfer; ``busy`` in
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
        for link in self.config.links[:-1]:
            before, after = layers[link.source], layers[link.sink]
            join(m, source=before.give[link.output], sink=after.take[link.place])
        connect(m, layer=layers[-1].o, accelerator=wiring.flipped(self.o))
        for name, layer in zip(self._taps, layers, strict=False):
            tap = getattr(self, name)
            m.d.comb += [
                tap.payload.eq(layer.give[0].payload),
                tap.valid.eq(layer.give[0].valid & layer.give[0].ready),
                tap.busy.eq(layer.busy),
            ]
        return m
