"""The accelerator: layers joined by streams, a chain or a graph of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, pairwise
from typing import ClassVar, TypeVar

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect

from hwgen.errors import ConfigError
from hwgen.gateware.cost import Resources
from hwgen.gateware.guard import FRAME_ERROR, GuardConfig
from hwgen.gateware.layer import Layer, LayerConfig
from hwgen.gateware.load.image import describe, digest_of, words_of
from hwgen.gateware.load.loader import STATE, WORD, Loader, LoaderConfig, packet
from hwgen.gateware.names import identifiers
from hwgen.gateware.stream import BeatFormat, Order, Port, join

T = TypeVar("T")

#: The accelerator's first input among the sources of a layer; others are the numbers below.
SOURCE = -1


@dataclass(frozen=True)
class Link:
    """A stream from one of a layer's FIFOs into a layer, or out of the accelerator; or one that comes in.

    Parameters
    ----------
    source, output : int
        The layer that it leaves, and which of its FIFOs; of one that comes in `SOURCE` or a number below, and 0.
    sink, place : int
        The layer that it enters, and which of its inputs; the number of layers for an output of the accelerator, and
        which.
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
        In topological order.
    sources : tuple of tuple of int, optional
        For each layer the numbers of the layers whose outputs it takes, in the order of its inputs. `SOURCE` is the
        accelerator's first input, `SOURCE` - 1 the second and so on; each is taken once. If not given, the layers are
        a chain.
    input_names : tuple of str, optional
        What the inputs are called where there are several; by their numbers if not given.
    outputs : tuple of int, optional
        Numbers of the layers whose outputs leave the accelerator, each in a stream of its own; the last one's alone if
        not given.
    output_names : tuple of str, optional
        What the outputs are called where there are several; by their layers if not given.

    Raises
    ------
    ConfigError
        If there is no layer, a layer takes what is not before it, an input is not taken or taken twice, a FIFO has no
        reader, neighbours don't fit, or there are not as many names as inputs or outputs.
    """

    titles: ClassVar[Mapping[str, str]] = {}
    """Names of components that are parts of the design by themselves: none, as all are parts of layers."""

    name: str
    layers: tuple[LayerConfig, ...]
    sources: tuple[tuple[int, ...], ...] = ()
    input_names: tuple[str, ...] = ()
    outputs: tuple[int, ...] = ()
    output_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.layers:
            raise ConfigError("layers must be at least one, not ()")
        if not self.sources:
            object.__setattr__(self, "sources", tuple((number - 1,) for number in range(len(self.layers))))
        if not self.outputs:
            object.__setattr__(self, "outputs", (len(self.layers) - 1,))
        if not all(0 <= number < len(self.layers) for number in self.outputs):
            raise ConfigError(f"outputs must be numbers of the {len(self.layers)} layers, not {self.outputs}")
        if not self.output_names:
            object.__setattr__(self, "output_names", tuple(self.layers[number].name for number in self.outputs))
        if len(self.output_names) != len(self.outputs):
            raise ConfigError(f"output_names must be {len(self.outputs)}, one an output, not {self.output_names}")
        self._check_sources()
        if not self.input_names:
            object.__setattr__(self, "input_names", tuple(str(place) for place in range(len(self.entries))))
        if len(self.input_names) != len(self.entries):
            raise ConfigError(f"input_names must be {len(self.entries)}, one an input, not {self.input_names}")
        for link in self.inner_links:
            before, after = self.layers[link.source], self.layers[link.sink]
            given, taken = before.outputs[link.output], after.inputs[link.place]
            if given != taken:
                raise ConfigError(f"{after.name}: input must be {before.name}'s output {given}, not {taken}")

    def _check_sources(self) -> None:
        if len(self.sources) != len(self.layers):
            raise ConfigError(f"sources must be given for each of {len(self.layers)} layers, not {self.sources}")
        for number, (layer, sources) in enumerate(zip(self.layers, self.sources, strict=True)):
            if len(sources) != len(layer.inputs) or not all(source < number for source in sources):
                raise ConfigError(f"{layer.name}: sources must be {len(layer.inputs)} layers before it, not {sources}")
        taken = sorted((source for sources in self.sources for source in sources if source < 0), reverse=True)
        if not taken or taken != list(range(SOURCE, SOURCE - len(taken), -1)):
            raise ConfigError(f"inputs must be numbered {SOURCE} and downward, and each taken once, not {taken}")
        readers = [self.outputs.count(number) for number in range(len(self.layers))]
        for source in (source for sources in self.sources for source in sources if source >= 0):
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
                if source >= 0:
                    readers[source].append((sink, place))
        for place, source in enumerate(self.outputs):
            readers[source].append((len(self.layers), place))
        return tuple(
            Link(source, output, *reader) for source, found in enumerate(readers) for output, reader in enumerate(found)
        )

    @cached_property
    def entries(self) -> tuple[Link, ...]:
        """The streams that come in, in the inputs' order."""
        found = [
            Link(source, 0, sink, place)
            for sink, sources in enumerate(self.sources)
            for place, source in enumerate(sources)
            if source < 0
        ]
        return tuple(sorted(found, key=lambda link: -link.source))

    @property
    def inner_links(self) -> tuple[Link, ...]:
        """Those of ``links`` that lead to a layer."""
        return tuple(link for link in self.links if link.sink < len(self.layers))

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
        """Whether each layer takes just the output of the one before, and the last one's output alone leaves."""
        alone = self.outputs == (len(self.layers) - 1,)
        return alone and all(sources == (number - 1,) for number, sources in enumerate(self.sources))

    @property
    def input(self) -> BeatFormat:
        """The beats of the only input."""
        return self._only_input.beat

    @property
    def _only_input(self) -> Port:
        """ConfigError if there are several."""
        if len(self.entries) > 1:
            raise ConfigError(f"{self.name}: inputs are {len(self.entries)}, not one: {', '.join(self.input_names)}")
        return self.input_ports[0]

    @cached_property
    def input_ports(self) -> tuple[Port, ...]:
        """The streams that come in: ``i``, or ``i_NAME`` where there are several."""
        several = len(self.entries) > 1
        names = identifiers(f"i_{name}" for name in self.input_names) if several else ["i"]
        found = []
        for name, link in zip(names, self.entries, strict=True):
            layer, beat = self.layers[link.sink], self.layers[link.sink].inputs[link.place]
            found.append(Port(name, beat, beat.raster if link.place else layer.input_order))
        return tuple(found)

    @cached_property
    def guards(self) -> tuple[GuardConfig, ...]:
        """What stands in front of each input."""
        return tuple(GuardConfig(beat=port.beat, beats=port.beats) for port in self.input_ports)

    @property
    def error_ports(self) -> tuple[str, ...]:
        """The ports on which the guards tell of wrong frames: ``frame_error``, or one with each input's name."""
        return tuple(f"frame_error{port.name.removeprefix('i')}" for port in self.input_ports)

    @cached_property
    def loader(self) -> LoaderConfig | None:
        """What loads weights at run time; ``None`` where they are constants."""
        words = sum(store.words for layer in self.layers for store in layer.stores)
        if not words:
            return None
        return LoaderConfig(
            digest=digest_of(self.description), words=words, inputs=len(self.entries), outputs=len(self.outputs)
        )

    @property
    def description(self) -> dict[str, dict[str, str]]:
        """The hardware but for what is loaded into it, by layer and field."""
        return describe(self.layers, self.sources, self.outputs)

    @property
    def load(self) -> bytes:
        """What loads the weights of this configuration, if they are loaded (`hwgen.gateware.load.loader`).

        Raises
        ------
        ConfigError
            If they are constants.
        """
        if self.loader is None:
            raise ConfigError(f"{self.name}: weights must be loaded at run time, not constants")
        return packet(self.loader.digest, words_of(self.layers))

    @property
    def output(self) -> BeatFormat:
        """The beats of the only output."""
        return self._only_output.beat

    @property
    def _only_output(self) -> Port:
        """ConfigError if there are several."""
        if len(self.outputs) > 1:
            raise ConfigError(f"{self.name}: outputs are {len(self.outputs)}, not one: {', '.join(self.output_names)}")
        return self.output_ports[0]

    @cached_property
    def output_ports(self) -> tuple[Port, ...]:
        """The streams that leave: ``o``, or ``o_NAME`` where there are several."""
        several = len(self.outputs) > 1
        names = identifiers(f"o_{name}" for name in self.output_names) if several else ["o"]
        found = []
        for place, name in enumerate(names):
            link = next(link for link in self.links if (link.sink, link.place) == (len(self.layers), place))
            layer = self.layers[link.source]
            found.append(Port(name, layer.outputs[link.output], layer.output_order))
        return tuple(found)

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
        """In which order the pixels of the only input come."""
        return self._only_input.order

    @property
    def output_order(self) -> Order:
        """In which order the pixels of the only output leave."""
        return self._only_output.order

    @property
    def tap_orders(self) -> tuple[Order, ...]:
        """In which order the pixels of ``taps`` travel."""
        return tuple(layer.output_order for layer in self.layers)

    @property
    def multipliers(self) -> int:
        return sum(layer.multipliers for layer in self.layers)

    @property
    def resources(self) -> Resources:
        """What all layers and the guards together take of a device, as estimated."""
        loader = () if self.loader is None else (self.loader,)
        return sum((part.resources for part in (*self.guards, *loader, *self.layers)), Resources())


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
        Frames, one after the other; with several inputs a stream ``i_NAME`` for each
        (`AcceleratorConfig.input_ports`), with ``last`` of its own. A frame that ends too early is completed, and what
        one has too much is dropped (`Guard`).
    frame_error : Out
        ``short``, ``long``: such a frame has come in; until ``clear``. With several inputs a ``frame_error_NAME`` for
        each.
    o : Out(stream)
        Their results in the same order; with several outputs a stream ``o_NAME`` for each
        (`AcceleratorConfig.output_ports`), with ``last`` of its own.
    weights : In(stream)
        Where weights are loaded at run time: loads, see `Loader`.
    weights_state : Out
        ``good``, ``error``, ``clear``, likewise. While ``good`` is low no frame begins.
    tap_N : Out
        With ``taps``: ``payload`` and ``valid`` of layer ``N``'s output to its first reader, valid in the cycle of a
        transfer; ``busy`` in
        each cycle in which its arithmetic takes a step.

    Reset
        Drops what is in flight; the next beat is the first of a frame.
    """

    def __init__(self, config: AcceleratorConfig, *, taps: bool = False):
        self._config = config
        members = {port.name: In(port.beat.signature) for port in config.input_ports}
        members |= {name: Out(FRAME_ERROR) for name in config.error_ports}
        members |= {port.name: Out(port.beat.signature) for port in config.output_ports}
        if config.loader is not None:
            members |= {"weights": In(WORD), "weights_state": Out(STATE)}
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
        guards = [guard.component() for guard in self.config.guards]
        loaders = [] if self.config.loader is None else [self.config.loader.component()]
        names = (
            *(layer.name for layer in self.config.layers),
            *(f"guard_{port.name}" for port in self.config.input_ports),
            *("load" for _ in loaders),
        )
        for name, part in zip(identifiers(names), (*layers, *guards, *loaders), strict=True):
            m.submodules[name] = part
        for loader in loaders:
            self._elaborate_loader(m, loader, layers)
        ends = zip(self.config.input_ports, self.config.error_ports, self.config.entries, guards, strict=True)
        for number, (port, error, link, guard) in enumerate(ends):
            if loaders:
                self._elaborate_gate(m, loaders[0], number, getattr(self, port.name), guard.i)
            else:
                connect(m, accelerator=wiring.flipped(getattr(self, port.name)), guard=guard.i)
            connect(m, accelerator=wiring.flipped(getattr(self, error)), guard=guard.error)
            connect(m, guard=guard.o, layer=layers[link.sink].take[link.place])
        for link in self.config.links:
            given = layers[link.source].give[link.output]
            if link.sink < len(layers):
                join(m, source=given, sink=layers[link.sink].take[link.place])
            else:
                port = getattr(self, self.config.output_ports[link.place].name)
                connect(m, layer=given, accelerator=wiring.flipped(port))
                for loader in loaders:
                    left = getattr(loader, f"left_{link.place}")
                    m.d.comb += left.eq(given.valid & given.ready & given.payload.last)
        for name, layer in zip(self._taps, layers, strict=False):
            tap = getattr(self, name)
            m.d.comb += [
                tap.payload.eq(layer.give[0].payload),
                tap.valid.eq(layer.give[0].valid & layer.give[0].ready),
                tap.busy.eq(layer.busy),
            ]
        return m

    def _elaborate_loader(self, m: Module, loader: Loader, layers: Sequence[Layer]) -> None:
        """The chain from what loads weights through all layers that have some, and back."""
        connect(m, accelerator=wiring.flipped(self.weights), load=loader.i)
        connect(m, accelerator=wiring.flipped(self.weights_state), load=loader.state)
        links = [layer for layer in layers if layer.config.stores]
        connect(m, load=loader.o, layer=links[0].load_i)
        for before, after in pairwise(links):
            connect(m, before=before.load_o, after=after.load_i)
        connect(m, layer=links[-1].load_o, load=loader.back)

    @staticmethod
    def _elaborate_gate(
        m: Module, loader: Loader, number: int, source: wiring.PureInterface, sink: wiring.PureInterface
    ) -> None:
        """An input whose frames wait while weights are loaded."""
        names = (f"{name}_{number}" for name in ("offered", "last", "taken", "open"))
        offered, last, taken, open_ = (getattr(loader, name) for name in names)
        m.d.comb += [
            sink.payload.eq(source.payload),
            sink.valid.eq(source.valid & open_),
            source.ready.eq(sink.ready & open_),
            offered.eq(sink.valid),
            last.eq(source.payload.last),
            taken.eq(sink.valid & sink.ready),
        ]
