"""Streaming accelerator: the top module that connects the layers of a CNN by streams, as a chain or as a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, pairwise
from typing import ClassVar, TypeVar

from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect

from hwgen.devices import Device
from hwgen.errors import ConfigError
from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.cost import Resources
from hwgen.gateware.guard import FRAME_ERROR, GuardConfig
from hwgen.gateware.layer import Layer, LayerConfig
from hwgen.gateware.load.image import describe, digest_of, words_of
from hwgen.gateware.load.loader import STATE, WORD, Loader, LoaderConfig, packet
from hwgen.gateware.names import identifiers, instance_names
from hwgen.gateware.stream import BeatFormat, Order, Port, join

T = TypeVar("T")

#: Index that stands for the accelerator's first input among the layers that a layer reads; further inputs: -2, -3, ..
SOURCE = -1


@dataclass(frozen=True)
class Link:
    """Stream between two layers, or between a layer and an input or output of the accelerator: indices of both ends.

    The sender is an output FIFO of a layer, or an input of the accelerator.

    Parameters
    ----------
    source, output : int
        Index of the layer that sends, and index of its FIFO. For an input of the accelerator: `SOURCE` or an index
        below it, and 0.
    sink, port : int
        Index of the layer that receives, and index of its input. For an output of the accelerator: the number of
        layers, and the index of the output.
    """

    source: int
    output: int
    sink: int
    port: int


@dataclass(frozen=True, kw_only=True)
class AcceleratorConfig:
    """Configuration of a streaming accelerator: CNN layers that compute at the same time, and the streams between them.

    Parameters
    ----------
    name : str
        Name of the top module.
    layers : tuple of LayerConfig
        Layers in topological order.
    sources : tuple of tuple of int, optional
        For each layer: indices of the layers whose outputs it reads, in the order of its inputs. `SOURCE` is the
        accelerator's first input, `SOURCE` - 1 the second, and so on. Each input has one reader. By default, the layers
        are a chain.
    input_names : tuple of str, optional
        Names of the inputs, used if there are several. By default, their indices.
    outputs : tuple of int, optional
        Indices of the layers whose outputs are outputs of the accelerator, each in its own stream. By default, the last
        layer.
    output_names : tuple of str, optional
        Names of the outputs, used if there are several. By default, the names of their layers.

    Raises
    ------
    ConfigError
        If there is no layer; if a layer reads a layer that is not before it; if an input does not have exactly one
        reader; if a FIFO has no reader; if the formats of neighbours differ; or if the number of names is wrong.
    """

    titles: ClassVar[Mapping[str, str]] = {}
    """Mapping from component name to its heading in the resource report, for hardware outside layers: empty here."""

    name: str
    layers: tuple[LayerConfig, ...]
    sources: tuple[tuple[int, ...], ...] = ()
    input_names: tuple[str, ...] = ()
    outputs: tuple[int, ...] = ()
    output_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.layers:
            raise ConfigError("layers must have at least one layer, not none")
        if not self.sources:
            object.__setattr__(self, "sources", tuple((index - 1,) for index in range(len(self.layers))))
        if not self.outputs:
            object.__setattr__(self, "outputs", (len(self.layers) - 1,))
        if not all(0 <= index < len(self.layers) for index in self.outputs):
            raise ConfigError(f"outputs must be numbers of the {len(self.layers)} layers, not {self.outputs}")
        if not self.output_names:
            object.__setattr__(self, "output_names", tuple(self.layers[index].name for index in self.outputs))
        if len(self.output_names) != len(self.outputs):
            raise ConfigError(f"output_names must be {len(self.outputs)}, one an output, not {self.output_names}")
        self._check_sources()
        if not self.input_names:
            object.__setattr__(self, "input_names", tuple(str(index) for index in range(len(self.input_links))))
        if len(self.input_names) != len(self.input_links):
            raise ConfigError(f"input_names must be {len(self.input_links)}, one an input, not {self.input_names}")
        for link in self.inner_links:
            before, after = self.layers[link.source], self.layers[link.sink]
            sent, taken = before.outputs[link.output], after.inputs[link.port]
            if sent != taken:
                raise ConfigError(f"{after.name}: input must be {before.name}'s output {sent}, not {taken}")

    def _check_sources(self) -> None:
        if len(self.sources) != len(self.layers):
            raise ConfigError(f"sources must be given for each of {len(self.layers)} layers, not {self.sources}")
        for index, (layer, sources) in enumerate(zip(self.layers, self.sources, strict=True)):
            if len(sources) != len(layer.inputs) or not all(source < index for source in sources):
                raise ConfigError(f"{layer.name}: sources must be {len(layer.inputs)} layers before it, not {sources}")
        taken = sorted((source for sources in self.sources for source in sources if source < 0), reverse=True)
        if not taken or taken != list(range(SOURCE, SOURCE - len(taken), -1)):
            raise ConfigError(f"inputs must be numbered {SOURCE} and downward, and each taken once, not {taken}")
        readers = [self.outputs.count(index) for index in range(len(self.layers))]
        for source in (source for sources in self.sources for source in sources if source >= 0):
            readers[source] += 1
        for layer, count in zip(self.layers, readers, strict=True):
            if count != len(layer.outputs):
                raise ConfigError(f"{layer.name}: outputs must be {count}, one for each reader, not {layer.outputs}")

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """Tuple of all streams that leave layers, one `Link` per reader (layer or output), sorted by writing layer."""
        readers: list[list[tuple[int, int]]] = [[] for _ in self.layers]
        for sink, sources in enumerate(self.sources):
            for port, source in enumerate(sources):
                if source >= 0:
                    readers[source].append((sink, port))
        for port, source in enumerate(self.outputs):
            readers[source].append((len(self.layers), port))
        return tuple(
            Link(source, output, *reader)
            for source, layer_readers in enumerate(readers)
            for output, reader in enumerate(layer_readers)
        )

    @cached_property
    def input_links(self) -> tuple[Link, ...]:
        """Tuple of streams (`Link`) from the accelerator's inputs to the layers that read them, one per input."""
        links = [
            Link(source, 0, sink, port)
            for sink, sources in enumerate(self.sources)
            for port, source in enumerate(sources)
            if source < 0
        ]
        return tuple(sorted(links, key=lambda link: -link.source))

    @property
    def inner_links(self) -> tuple[Link, ...]:
        """Tuple of streams (`Link`) from layer to layer: all ``links`` except those to the accelerator's outputs."""
        return tuple(link for link in self.links if link.sink < len(self.layers))

    @property
    def fifo_depths(self) -> list[int]:
        """Depth of every output FIFO of every layer, in beats: one flat list in the order of ``links``."""
        return [depth for layer in self.layers for depth in layer.fifo_depths]

    def split_by_layer(self, of_fifos: Sequence[T]) -> list[tuple[T, ...]]:
        """Return a list of tuples, one per layer, from a sequence with one value per output FIFO."""
        rest = iter(of_fifos)
        return [tuple(islice(rest, len(layer.outputs))) for layer in self.layers]

    @property
    def is_chain(self) -> bool:
        """Whether the layers form a simple chain: each reads the previous layer, and only the last drives an output."""
        alone = self.outputs == (len(self.layers) - 1,)
        return alone and all(sources == (index - 1,) for index, sources in enumerate(self.sources))

    @property
    def input(self) -> BeatFormat:
        """`BeatFormat` (shape, lanes, channels) of the accelerator's only input stream; an error if it has several."""
        return self._only_input.beat

    @property
    def _only_input(self) -> Port:
        """Stream `Port` (name, beat format, pixel order) of the only input. Raises ConfigError if there are several."""
        if (count := len(self.input_links)) > 1:
            raise ConfigError(f"{self.name}: inputs are {count}, not one: {', '.join(self.input_names)}")
        return self.input_ports[0]

    @cached_property
    def instances(self) -> list[str]:
        """Verilog instance names, as a list: layers in order, then input guards, then the weight loader."""
        others = [f"guard_{port.name}" for port in self.input_ports]
        return instance_names([layer.name for layer in self.layers], [*others, *["load"] * (self.loader is not None)])

    @cached_property
    def input_ports(self) -> tuple[Port, ...]:
        """Tuple of each input stream's `Port` (name, beat format, pixel order): ``i``, or ``i_NAME`` if several."""
        several = len(self.input_links) > 1
        names = identifiers(f"i_{name}" for name in self.input_names) if several else ["i"]
        ports = []
        for name, link in zip(names, self.input_links, strict=True):
            layer, beat = self.layers[link.sink], self.layers[link.sink].inputs[link.port]
            ports.append(Port(name, beat, beat.raster if link.port else layer.input_order))
        return tuple(ports)

    @property
    def device(self) -> Device:
        """FPGA device family, a `Device`, that all layers are built for."""
        return self.layers[0].device

    @cached_property
    def guards(self) -> tuple[GuardConfig, ...]:
        """Tuple of `GuardConfig` objects, one per input, whose guards complete short frames and drop surplus beats."""
        return tuple(GuardConfig(device=self.device, beat=port.beat, beats=port.beats) for port in self.input_ports)

    @property
    def error_ports(self) -> tuple[str, ...]:
        """Tuple of port names that report frames of wrong length: ``frame_error`` or ``frame_error_NAME``."""
        return tuple(f"frame_error{port.name.removeprefix('i')}" for port in self.input_ports)

    @cached_property
    def loader(self) -> LoaderConfig | None:
        """`LoaderConfig` of the component that loads weights at run time; ``None`` if all weights are constants."""
        stores = [store for layer in self.layers for store in layer.stores]
        if not stores:
            return None
        return LoaderConfig(
            device=self.device,
            digest=digest_of(self.description),
            words=sum(store.words for store in stores),
            inputs=len(self.input_links),
            outputs=len(self.outputs),
            initialised=all(store.is_initialised for store in stores),
        )

    @property
    def description(self) -> dict[str, dict[str, str]]:
        """Nested dictionary, layer name to configuration field to the field's value as text, without loaded weights.

        Its digest identifies the hardware that a set of weights fits.
        """
        return describe(self.layers, self.sources, self.outputs)

    @property
    def first_load(self) -> bytes | None:
        """Bytes of the weight packet to send before the first frame; ``None`` if the hardware starts with weights.

        Weights in UltraRAM have to be loaded, because UltraRAM is initialised to zeros.
        """
        return self.weight_packet if self.loader is not None and not self.loader.initialised else None

    @property
    def weight_packet(self) -> bytes:
        """Bytes of the packet that loads this configuration's weights when it is sent to the loader at run time.

        Raises
        ------
        ConfigError
            If the weights are constants.
        """
        if self.loader is None:
            raise ConfigError(f"{self.name}: weights must be loaded at run time, not constants")
        return packet(self.loader.digest, words_of(self.layers))

    @property
    def output(self) -> BeatFormat:
        """`BeatFormat` (shape, lanes, channels) of the accelerator's only output stream; an error if it has several."""
        return self._only_output.beat

    @property
    def _only_output(self) -> Port:
        """`Port` (name, beat format, pixel order) of the only output stream. Raises ConfigError if there are more."""
        if len(self.outputs) > 1:
            raise ConfigError(f"{self.name}: outputs are {len(self.outputs)}, not one: {', '.join(self.output_names)}")
        return self.output_ports[0]

    @cached_property
    def output_ports(self) -> tuple[Port, ...]:
        """Tuple of each output stream's `Port` (name, beat format, pixel order): ``o``, or ``o_NAME`` if several."""
        several = len(self.outputs) > 1
        names = identifiers(f"o_{name}" for name in self.output_names) if several else ["o"]
        ports = []
        for output_index, name in enumerate(names):
            link = next(link for link in self.links if (link.sink, link.port) == (len(self.layers), output_index))
            layer = self.layers[link.source]
            ports.append(Port(name, layer.outputs[link.output], layer.output_order))
        return tuple(ports)

    @property
    def ports(self) -> dict[str, wiring.Member]:
        """Dict from name to member of the accelerator's Amaranth signature, without observation ports ``tap_N``."""
        members: dict[str, wiring.Member] = {port.name: In(port.beat.signature) for port in self.input_ports}
        members |= {name: Out(FRAME_ERROR) for name in self.error_ports}
        members |= {port.name: Out(port.beat.signature) for port in self.output_ports}
        if self.loader is not None:
            members |= {"weights": In(WORD), "weights_state": Out(STATE)}
        return members

    @property
    def taps(self) -> tuple[BeatFormat, ...]:
        """Tuple of the `BeatFormat` of each observation port ``tap_N``, a copy of layer N's first output stream."""
        return tuple(layer.output for layer in self.layers)

    @property
    def start_up(self) -> int:
        """Number of cycles from a reset until the accelerator can accept the first input beat."""
        return self.layers[0].start_up

    @property
    def input_order(self) -> Order:
        """Pixel `Order` of the accelerator's only input stream: rectangle by rectangle, and row by row within one."""
        return self._only_input.order

    @property
    def output_order(self) -> Order:
        """Pixel `Order` of the accelerator's only output stream: rectangle by rectangle, and row by row within one."""
        return self._only_output.order

    @property
    def tap_orders(self) -> tuple[Order, ...]:
        """Tuple of the pixel `Order` of each observation port ``tap_N``, the order of layer N's output pixels."""
        return tuple(layer.output_order for layer in self.layers)

    @property
    def multipliers(self) -> int:
        return sum(layer.multipliers for layer in self.layers)

    @property
    def resources(self) -> Resources:
        """Estimated FPGA `Resources` (LUTs, FFs, DSPs, block RAM) of all layers, input guards and the weight loader."""
        loader = () if self.loader is None else (self.loader,)
        return sum((component.resources for component in (*self.guards, *loader, *self.layers)), Resources())


class Accelerator(ConfiguredComponent[AcceleratorConfig]):
    """Top component of a streaming accelerator: CNN layers that compute at the same time, connected by on-chip streams.

    Parameters
    ----------
    config : AcceleratorConfig
    taps : bool
        Whether the output of every layer can be observed, for example to locate a wrong layer.

    Members
    -------
    i : In(stream)
        Frames, one after the other. With several inputs, one stream ``i_NAME`` per input
        (`AcceleratorConfig.input_ports`), with its own ``last``. Short frames are completed, and surplus beats are
        dropped (`Guard`).
    frame_error : Out
        ``short`` and ``long``: a frame of wrong length has arrived; high until ``clear``. With several inputs, one
        ``frame_error_NAME`` per input.
    o : Out(stream)
        Results of the frames, in order. With several outputs, one stream ``o_NAME`` per output
        (`AcceleratorConfig.output_ports`), with its own ``last``.
    weights : In(stream)
        Loads of run-time weights (`Loader`). Exists only if weights are loaded at run time.
    weights_state : Out
        ``good``, ``error`` and ``clear`` of the loader. Exists only if weights are loaded at run time. No frame begins
        while ``good`` is low.
    tap_N : Out
        Observation of layer ``N``, with ``taps`` only. ``payload`` is the beat for the first reader; ``valid`` is high
        in the cycle of its transfer; ``busy`` is high in each cycle when the layer's arithmetic executes a step.

    Reset
        Drops all frames in flight. The next beat is the first beat of a frame.
    """

    def __init__(self, config: AcceleratorConfig, *, taps: bool = False):
        members = dict(config.ports)
        self._taps = [f"tap_{index}" for index in range(len(config.layers))] if taps else []
        for name, beat in zip(self._taps, config.taps, strict=False):
            members[name] = Out(wiring.Signature({"payload": Out(beat.layout), "valid": Out(1), "busy": Out(1)}))
        super().__init__(config, members)

    def elaborate(self, platform):
        m = Module()
        watched = bool(self._taps)
        layers = [Layer(layer, busy=watched) for layer in self.config.layers]
        guards = [guard.component() for guard in self.config.guards]
        loaders = [] if self.config.loader is None else [self.config.loader.component()]
        for name, component in zip(self.config.instances, (*layers, *guards, *loaders), strict=True):
            m.submodules[name] = component
        for loader in loaders:
            self._elaborate_loader(m, loader, layers)
        ends = zip(self.config.input_ports, self.config.error_ports, self.config.input_links, guards, strict=True)
        for index, (port, error, link, guard) in enumerate(ends):
            if loaders:
                self._elaborate_gate(m, loaders[0], index, getattr(self, port.name), guard.i)
            else:
                connect(m, accelerator=wiring.flipped(getattr(self, port.name)), guard=guard.i)
            connect(m, accelerator=wiring.flipped(getattr(self, error)), guard=guard.error)
            connect(m, guard=guard.o, layer=layers[link.sink].input_streams[link.port])
        for link in self.config.links:
            sent = layers[link.source].output_streams[link.output]
            if link.sink < len(layers):
                join(m, source=sent, sink=layers[link.sink].input_streams[link.port])
            else:
                port = getattr(self, self.config.output_ports[link.port].name)
                connect(m, layer=sent, accelerator=wiring.flipped(port))
                for loader in loaders:
                    left = getattr(loader, f"left_{link.port}")
                    m.d.comb += left.eq(sent.valid & sent.ready & sent.payload.last)
        for name, layer in zip(self._taps, layers, strict=False):
            tap, sent = getattr(self, name), layer.output_streams[0]
            m.d.comb += [
                tap.payload.eq(sent.payload),
                tap.valid.eq(sent.valid & sent.ready),
                tap.busy.eq(layer.busy),
            ]
        return m

    def _elaborate_loader(self, m: Module, loader: Loader, layers: Sequence[Layer]) -> None:
        """Connect the weight loader and all layers with run-time weights in a ring that the weights travel through."""
        connect(m, accelerator=wiring.flipped(self.weights), load=loader.i)
        connect(m, accelerator=wiring.flipped(self.weights_state), load=loader.state)
        links = [layer for layer in layers if layer.config.stores]
        connect(m, load=loader.o, layer=links[0].load_i)
        for before, after in pairwise(links):
            connect(m, before=before.load_o, after=after.load_i)
        connect(m, layer=links[-1].load_o, load=loader.back)

    @staticmethod
    def _elaborate_gate(
        m: Module, loader: Loader, index: int, source: wiring.PureInterface, sink: wiring.PureInterface
    ) -> None:
        """Connect an input port to its frame guard through a gate that lets no frame begin while weights are loaded."""
        names = (f"{name}_{index}" for name in ("offered", "last", "taken", "open"))
        offered, last, taken, open_ = (getattr(loader, name) for name in names)
        m.d.comb += [
            sink.payload.eq(source.payload),
            sink.valid.eq(source.valid & open_),
            source.ready.eq(sink.ready & open_),
            offered.eq(sink.valid),
            last.eq(source.payload.last),
            taken.eq(sink.valid & sink.ready),
        ]
