"""Layer of a streaming accelerator: line buffer, arithmetic, FIFO, and credits that prevent FIFO overflow."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise, product, repeat
from typing import Any, ClassVar, Protocol, TypeVar

from amaranth import Cat, Module, Shape, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect

from hwgen import frozen
from hwgen.errors import ConfigError
from hwgen.gateware.component import ConfiguredComponent, HasWindow
from hwgen.gateware.cost import Resources
from hwgen.gateware.credits import CreditsConfig, count_credits
from hwgen.gateware.fifo import Fifo, FifoConfig
from hwgen.gateware.line_buffer import LineBuffer, LineBufferConfig
from hwgen.gateware.load.distribute import Distribute, DistributeConfig
from hwgen.gateware.load.loaded_memory import CHAIN, LoadedMemory
from hwgen.gateware.lookup import delayed
from hwgen.gateware.regroup import Regroup, RegroupConfig
from hwgen.gateware.stream import BeatFormat, Order, at_pixel, channels_layout, join, numbered, pipeline_ports
from hwgen.gateware.unload import Unload, UnloadConfig


class ComponentConfig(Protocol):
    """Protocol of the configuration of any hardware component of a layer, with its resources and its component."""

    @cached_property
    def resources(self) -> Resources:
        """Estimated FPGA `Resources` of the configured component."""
        ...

    def component(self) -> Any:
        """Return a new Amaranth component with this configuration."""
        ...


class LayerCompute(ComponentConfig, Protocol):
    """Protocol of configurations of a layer's arithmetic, which computes ``Tm`` output channels at once.

    A new kind of arithmetic is a new file with a configuration and its component. The configuration is a frozen
    dataclass with a field ``window``. The component has two ports, both streams that are always ready. Port ``i``
    reads a step of the window (`LineBufferConfig.step_layout`) in any cycle. Port ``o`` writes results of shape
    ``result``, ``[lane][pixel]``, ``latency`` cycles after the last step of a fold.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def window(self) -> Any:
        """Configuration of the component that feeds operands to the arithmetic, such as a line buffer or a join."""
        ...

    @property
    def lanes(self) -> int:
        """Number of output channels that the arithmetic computes at once, ``Tm``."""
        ...

    @property
    def result(self) -> Shape:
        """Amaranth shape of one result of the arithmetic, such as an accumulator."""
        ...

    @property
    def latency(self) -> int:
        """Cycles from the last operands of a result on port ``i`` to the result on port ``o``."""
        ...

    @property
    def multipliers(self) -> int:
        """Number of DSP slices of the arithmetic."""
        ...

    @property
    def weight_memory(self) -> str | None:
        """RAM that stores the layer's weights, ``lut`` or ``block``; ``None`` for a layer without weights."""
        ...


AnyCompute = TypeVar("AnyCompute", bound=LayerCompute)


class Arithmetic(ConfiguredComponent[AnyCompute]):
    """Base class of components that implement a layer's arithmetic (`LayerCompute`), with stream ports ``i`` and ``o``.

    Parameters
    ----------
    config : LayerCompute
        Configuration of the component.
    ports : Member
        Further ports, by name.
    """

    def __init__(self, config: AnyCompute, **ports: wiring.Member):
        results = channels_layout(config.result, config.lanes, config.window.pixels)
        super().__init__(config, {**pipeline_ports(config.window.step_layout, results), **ports})


class Elementwise(Arithmetic[AnyCompute]):
    """Base class of components whose arithmetic computes every output value on its own, in a fixed number of cycles."""

    def elaborate(self, platform):
        m = Module()
        pixels = self.config.window.pixels
        self.elaborate_shared(m)
        for lane, pixel in product(range(self.config.lanes), range(pixels)):
            value = self.elaborate_value(m, at_pixel(f"lane_{lane}", pixel, pixels), lane, pixel)
            m.d.comb += self.o.payload[lane][pixel].eq(value)
        m.d.comb += self.o.valid.eq(delayed(m, "valid", self.i.valid, self.config.latency, reset_less=False))
        return m

    def elaborate_shared(self, m: Module) -> None:
        """Add the logic that all lanes and pixels of the elementwise arithmetic share; by default, none."""

    @abstractmethod
    def elaborate_value(self, m: Module, name: str, lane: int, pixel: int) -> Value:
        """Add the logic of one lane and pixel of the elementwise arithmetic, and return its output value.

        Names of signals and submodules must begin with ``name``.
        """


class Weightless(HasWindow):
    """Base class of configurations of weightless arithmetic (pools, sums), with as many output as input lanes."""

    multipliers = 0
    #: RAM that stores the weights: none.
    weight_memory = None

    @property
    def lanes(self) -> int:
        return self.window.input.lanes


class LayerFinish(ComponentConfig, Protocol):
    """Protocol of the configuration of a layer's requantiser, or of a bias adder in its place.

    It converts results of the arithmetic, such as accumulators, to the layer's outputs. The component has two ports,
    both streams that are always ready. Port ``i`` reads a beat in any cycle. Port ``o`` writes the outputs ``latency``
    cycles later. Lanes without a channel are 0.
    """

    @property
    def latency(self) -> int:
        """Cycles from a beat of the arithmetic's results at ``i`` to the beat of the layer's outputs at ``o``."""
        ...

    @property
    def multipliers(self) -> int:
        """Number of DSP slices of the layer's requantiser."""
        ...


@dataclass(frozen=True, kw_only=True)
class LayerConfig(HasWindow):
    """Configuration of the hardware of one CNN layer: line buffer, arithmetic, requantisation and output FIFOs.

    Parameters
    ----------
    name : str
        Name of the layer in the model.
    compute : LayerCompute
        Arithmetic, whose ``window`` is the layer's line buffer.
    finish : LayerFinish or None
        Stage that computes outputs from the results of the arithmetic. ``None`` if the results are the outputs,
        as for max pooling.
    fifo_lanes : int
        Number of channels of a FIFO beat, ``r``; at least ``ceil(Tm / steps of a fold)``.
    fifo_depths : tuple of int
        Depth of the output FIFO for each reader: beats that are stored or in flight. At least the beats of one output
        fold.
    outputs : tuple of BeatFormat
        Output stream to each reader. All streams have the same feature map; their lanes can differ.
    fifos_in : tuple of (str or None)
        RAM of each FIFO, ``lut`` or ``block``; ``None``, or an empty tuple, if the depth decides.
    converts_first : tuple of bool
        Whether the width converter of each reader is before its FIFO, which then holds beats of the reader's channels.
        A reader that takes its input in bursts gets a whole beat per cycle only so. Empty if all are after the FIFOs.

    Raises
    ------
    ConfigError
        If the components do not fit each other, or a FIFO is too small for an output fold.
    """

    name: str
    compute: LayerCompute
    finish: LayerFinish | None
    fifo_lanes: int
    fifo_depths: tuple[int, ...]
    outputs: tuple[BeatFormat, ...]
    fifos_in: tuple[str | None, ...] = ()
    converts_first: tuple[bool, ...] = field(default=(), metadata=frozen.added())

    #: Cycles from the transfer of a beat out of the FIFO to the start of an output fold that waits for the free entry.
    credit_delay = 1
    #: Whether the layer has a line buffer, which stores rows of the input.
    has_line_buffer = True
    #: Whether the layer has the same timing in all rows inside a map, so that a schedule can skip rows.
    rows_alike = True
    #: Cycles of the largest tile, if the accelerator computes maps in tiles (pyramids); otherwise ``None``.
    pyramid_cycles: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        if not self.outputs or len(self.outputs) != len(self.fifo_depths):
            raise ConfigError(f"{self.name}: outputs must be one or more, with a FIFO each, not {self.outputs!r}")
        if len(self.fifos_in) not in (0, len(self.fifo_depths)):
            raise ConfigError(f"{self.name}: fifos_in must be empty or one for each FIFO, not {self.fifos_in!r}")
        if len(self.converts_first) not in (0, len(self.fifo_depths)):
            raise ConfigError(
                f"{self.name}: converts_first must be empty or one for each FIFO, not {self.converts_first!r}"
            )
        for depth, where in zip(self.fifo_depths, self.fifos_in, strict=False):
            self.memories.check_ram(f"{self.name}: fifos_in", where, depth)
        for output in self.outputs:
            if output.pixels != self.pixels:
                raise ConfigError(f"{self.name}: output.pixels must be {self.pixels}, not {output.pixels!r}")
        if max(self.fold_beats) > self.window.steps:
            raise ConfigError(
                f"{self.name}: fifo_lanes must be at least {-(-self.compute.lanes // self.window.steps)}, "
                f"not {self.fifo_lanes!r}"
            )
        for regroup, is_first in zip(self._converters, self.converts_first, strict=False):
            if is_first and not regroup.widens:
                raise ConfigError(
                    f"{self.name}: converts_first must be false, not true, for a reader of {regroup.output.lanes} "
                    "channels "
                    f"per beat, which needs at least as many beats per pixel as the layer's {len(regroup.counts)}"
                )
        for depth, claims in zip(self.fifo_depths, self.claims, strict=True):
            if depth < max(claims):
                raise ConfigError(
                    f"{self.name}: fifo_depth must be at least {max(claims)}, the beats of one output fold, "
                    f"not {depth!r}"
                )

    @property
    def window(self) -> LineBufferConfig:
        return self.compute.window

    @property
    def loaded_parts(self) -> dict[str, Any]:
        """Dict from part (``compute``, ``finish``) to configuration, for parts with memories loaded at run time."""
        parts = {"compute": self.compute, "finish": self.finish}
        return {name: part for name, part in parts.items() if getattr(part, "stores", ())}

    @property
    def stores(self) -> tuple[LoadedMemory, ...]:
        """Tuple of each `LoadedMemory` that is loaded at run time, such as weight memories; empty if constant."""
        return tuple(store for part in self.loaded_parts.values() for store in part.stores)

    @property
    def stored_contents(self) -> tuple[tuple[int, ...], ...]:
        """Tuple of words (integers) per memory of the layer that is loaded at run time, in order of ``stores``."""
        return tuple(contents for part in self.loaded_parts.values() for contents in part.stored_contents)

    @property
    def distributor(self) -> DistributeConfig | None:
        """`DistributeConfig` of the component that writes run-time weights to memories; ``None`` if it has none."""
        return DistributeConfig(device=self.device, stores=self.stores) if self.stores else None

    @property
    def blank(self) -> LayerConfig:
        """Copy of this `LayerConfig` without the contents of memories that are loaded at run time."""
        return replace(self, **{name: part.blank for name, part in self.loaded_parts.items()})

    @property
    def inputs(self) -> tuple[BeatFormat, ...]:
        """Tuple of the `BeatFormat` (shape, lanes, channels) of each input stream of the layer."""
        return (self.window.input,)

    @property
    def output(self) -> BeatFormat:
        """Beat format (`BeatFormat`) of the layer's output stream to its first reader."""
        return self.outputs[0]

    @property
    def input_order(self) -> Order:
        """Pixel `Order` of the layer's input map: row by row, unless the layer computes the map in tiles."""
        return self.window.input.raster

    @property
    def output_order(self) -> Order:
        """Pixel `Order` of the layer's output map: row by row, unless the layer computes the map in tiles."""
        return self.output.raster

    @property
    def pixels(self) -> int:
        """Number of neighbouring output pixels per beat of the layer, ``Tp``."""
        return self.window.pixels

    @cached_property
    def unload(self) -> UnloadConfig:
        """`UnloadConfig` of the layer's serialiser, which splits ``Tm`` results into beats of ``fifo_lanes`` lanes."""
        return UnloadConfig(
            device=self.device,
            channels=self.output.channels,
            lanes_in=self.compute.lanes,
            lanes_out=self.fifo_lanes,
            shape=self.compute.result,
            clears=self.finish is None,
            pixels=self.pixels,
            groups=1 if self.fold_channels else self.window.input.groups,
            folds=self.fold_channels,
        )

    @property
    def fold_channels(self) -> tuple[int, ...]:
        """Tuple of numbers of channels of a pixel's output folds (passes over ``Tm``); empty if ``Tm`` sets them."""
        return ()

    @cached_property
    def fold_beats(self) -> tuple[int, ...]:
        """Tuple of numbers of beats that each output fold (``Tm`` channels) of a pixel sends to the output FIFOs."""
        return self.unload.fold_beats

    @cached_property
    def claims(self) -> tuple[tuple[int, ...], ...]:
        """Credits (FIFO entries) that each output fold (pass over ``Tm`` channels) claims: a tuple per output FIFO."""
        ends = list(accumulate(self.fold_beats))
        return tuple(
            tuple(sum(begin <= beat < end for beat in regroup.completing_beats) for begin, end in pairwise((0, *ends)))
            if regroup.always_ready
            else self.fold_beats
            for regroup in self.regroups
        )

    @property
    def start_up(self) -> int:
        """Number of cycles from a reset until the layer can accept its first input beat."""
        return 0

    @property
    def windows(self) -> int:
        """Number of groups of ``Tp`` neighbouring output pixels that the layer computes per frame."""
        return self.window.windows

    @property
    def beats_in(self) -> int:
        """Number of input beats of the layer per frame; the largest number if there are several inputs."""
        return self.window.input.beats

    @property
    def input_beats(self) -> tuple[int, ...]:
        """Tuple of the numbers of beats per frame of the layer's inputs."""
        return (self.beats_in,)

    @property
    def beats(self) -> int:
        """Number of beats per frame that the layer's pipeline sends to its output FIFOs."""
        return self.windows * sum(self.fold_beats)

    @property
    def stored_beats(self) -> tuple[int, ...]:
        """Tuple of the numbers of beats per frame that the layer writes to its output FIFOs."""
        return tuple(self.windows * sum(claims) for claims in self.claims)

    @property
    def beats_out(self) -> int:
        """Number of beats per frame of the layer's output stream to its first reader."""
        return self.windows * self.output.folds

    @property
    def min_rows(self) -> int:
        """Minimum number of image rows that the layer's line buffer must store: the rows of one window."""
        return self.window.min_rows

    @cached_property
    def fifos(self) -> tuple[FifoConfig, ...]:
        """Tuple of the `FifoConfig` of each output FIFO of the layer, one per reader of the output."""
        return tuple(
            FifoConfig(
                device=self.device,
                lanes=regroup.output.lanes if regroup.always_ready else self.fifo_lanes,
                bits=self.output.bits,
                signed=self.output.signed,
                beats=beats,
                depth=depth,
                pixels=self.pixels,
                memory_in=where,
            )
            for regroup, beats, depth, where in zip(
                self.regroups, self.stored_beats, self.fifo_depths, self.fifos_in or repeat(None), strict=False
            )
        )

    @cached_property
    def regroups(self) -> tuple[RegroupConfig, ...]:
        """Tuple with a `RegroupConfig` per reader: width converter from pipeline beats to the reader's beats."""
        pairs = zip(self._converters, self.converts_first or repeat(False), strict=False)
        return tuple(replace(regroup, always_ready=is_first) if is_first else regroup for regroup, is_first in pairs)

    @property
    def _converters(self) -> tuple[RegroupConfig, ...]:
        """Tuple with a `RegroupConfig` per reader: its width converter, placed after its output FIFO."""
        counts = tuple(len(beat) for beat in self.unload.beats)
        lanes, device = self.fifo_lanes, self.device
        return tuple(RegroupConfig(device=device, counts=counts, lanes=lanes, output=output) for output in self.outputs)

    @property
    def credits(self) -> tuple[CreditsConfig, ...]:
        """Tuple of the `CreditsConfig` of each counter of free entries, one per output FIFO of the layer.

        An output fold starts when all FIFOs have room.
        """
        pairs = zip(self.fifo_depths, self.claims, strict=True)
        return tuple(CreditsConfig(device=self.device, depth=depth, claims=claims) for depth, claims in pairs)

    @property
    def walk(self) -> dict[str, ComponentConfig]:
        """Dictionary from instance name to `ComponentConfig` of the components that feed windows to the arithmetic."""
        return {"window": self.window}

    @property
    def components(self) -> dict[str, ComponentConfig]:
        """Dictionary from instance name to `ComponentConfig` of all components in the layer's module."""
        return {
            **self.walk,
            "compute": self.compute,
            "unload": self.unload,
            **({} if self.finish is None else {"finish": self.finish}),
            **({} if self.distributor is None else {"load": self.distributor}),
            **self._reader_components,
        }

    @property
    def _reader_components(self) -> dict[str, ComponentConfig]:
        """Dictionary from instance name to `ComponentConfig` of readers' FIFOs, width converters, credit counters."""
        components: dict[str, ComponentConfig] = {}
        for reader, (fifo, regroup, credits) in enumerate(zip(self.fifos, self.regroups, self.credits, strict=True)):
            components[self.of_reader("fifo", reader)] = fifo
            if regroup.needed:
                components[self.of_reader("regroup", reader)] = regroup
            components[self.of_reader("credits", reader)] = credits
        return components

    def of_reader(self, name: str, reader_index: int) -> str:
        """Return a reader's name for a component or port: ``name``, or ``name_INDEX`` if readers are several."""
        return numbered(name, reader_index, len(self.outputs))

    @cached_property
    def resources(self) -> Resources:
        """Estimated FPGA `Resources` of all of the layer's components together."""
        return sum((config.resources for config in self.components.values()), Resources())

    @property
    def input_ports(self) -> tuple[str, ...]:
        """Tuple of names of the layer's input stream ports: ``i``, or ``i_0``, ``i_1`` .. for several inputs."""
        return tuple(numbered("i", index, len(self.inputs)) for index in range(len(self.inputs)))

    @property
    def output_ports(self) -> tuple[str, ...]:
        """Tuple of names of the layer's output stream ports: ``o``, or ``o_0``, ``o_1`` .. for several readers."""
        return tuple(self.of_reader("o", reader) for reader in range(len(self.outputs)))

    def walk_component(self) -> Any:
        """Return a new component that feeds windows of the layer's input to the arithmetic, usually a line buffer."""
        return LineBuffer(self.window)

    @property
    def pipeline_latency(self) -> int:
        """Cycles from the start of a pass over ``Tm`` channels (output fold) to its first beat at the FIFO."""
        finish = self.finish.latency if self.finish else 0
        return self.window.steps - 1 + self.walk_latency + self.compute.latency + self.unload.latency + finish

    @property
    def walk_latency(self) -> int:
        """Cycles from a read of taps in the line buffer until the taps are at the arithmetic."""
        return self.window.latency

    @property
    def cycles(self) -> int:
        """Cycles per frame of the layer if neither its source nor its readers make it wait."""
        return max(self.window.windows * self.window.window_cycles, self.window.input.beats)

    @property
    def window_steps(self) -> int:
        """Cycles that the arithmetic needs to read the operands of ``Tp`` neighbouring output pixels.

        The component that feeds the windows can need more cycles.
        """
        return self.window.window_cycles

    def with_rows(self, rows: int) -> LayerConfig:
        """Return a `LayerConfig`: a copy of the layer's configuration whose line buffer stores ``rows`` image rows."""
        return replace(self, compute=replace(self.compute, window=replace(self.window, rows=rows)))

    @property
    def credit_cycles(self) -> int:
        """Maximum number of cycles per frame that the layer waits for FIFO credits, if readers accept at once.

        A beat's credit returns one latency of the pipeline and the FIFO after the output fold claimed the credit.
        """
        round_trip = self.pipeline_latency + FifoConfig.latency + self.credit_delay
        converting = any(self.converts_first) * RegroupConfig.latency
        fills = max(-(-beats // depth) for beats, depth in zip(self.stored_beats, self.fifo_depths, strict=True))
        return fills * (round_trip + converting)

    @property
    def multipliers(self) -> int:
        return self.compute.multipliers + (self.finish.multipliers if self.finish else 0)


class Layer(ConfiguredComponent[LayerConfig]):
    """Component that computes one CNN layer, with streams of feature maps as inputs and outputs.

    The arithmetic never stalls, because an output fold starts only when the FIFOs have room for all its beats.

    Parameters
    ----------
    config : LayerConfig
        Configuration of the layer.
    busy : bool
        Whether to add the port ``busy``.

    Members
    -------
    i : In(stream)
        Input feature map, ``Tn`` channels per beat. Several inputs are ``i_0``, ``i_1`` ..
    o : Out(stream)
        Output feature map. Outputs of several readers are ``o_0``, ``o_1`` ..
    load_i, load_o : In(stream, always ready), Out(stream, always ready)
        Link of the chain that carries words to memories loaded at run time (`Distribute`).
    busy : Out(1)
        High while the arithmetic reads a step; only if ``busy`` is set.
    """

    def __init__(self, config: LayerConfig, *, busy: bool = False):
        self._busy = busy
        members = {
            **{port: In(beat.signature) for port, beat in zip(config.input_ports, config.inputs, strict=True)},
            **{port: Out(beat.signature) for port, beat in zip(config.output_ports, config.outputs, strict=True)},
        }
        if config.stores:
            members |= {"load_i": In(CHAIN), "load_o": Out(CHAIN)}
        super().__init__(config, members | {"busy": Out(1)} if busy else members)

    @property
    def about(self) -> str:
        """Comment for the head of the layer's Verilog module: operation, channels and unroll factors."""
        compute, window = self.config.compute, self.config.window
        kernel = "{}x{} ".format(*window.kernel) if hasattr(window, "kernel") else ""
        channels = f"{window.input.channels} to {self.config.output.channels} channels"
        unroll = f"Tn={window.input.lanes} Tm={compute.lanes} Tk={getattr(window, 'taps', 1)} Tp={window.pixels}"
        return f"{kernel}{getattr(compute, 'operation', 'layer')}, {channels}, {unroll}"

    @property
    def input_streams(self) -> list[wiring.PureInterface]:
        """List of Amaranth stream interfaces of the layer's inputs, in the order of the inputs."""
        return [getattr(self, port) for port in self.config.input_ports]

    @property
    def output_streams(self) -> list[wiring.PureInterface]:
        """List of Amaranth stream interfaces of the layer's outputs, one for each reader of the output."""
        return [getattr(self, port) for port in self.config.output_ports]

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.window = window = config.walk_component()
        m.submodules.compute = compute = config.compute.component()
        m.submodules.unload = unload = Unload(config.unload)
        for port, stream in zip(config.input_ports, self.input_streams, strict=True):
            connect(m, layer=wiring.flipped(stream), window=getattr(window, port))
        connect(m, window=window.o, compute=compute.i)
        if self._busy:
            m.d.comb += self.busy.eq(compute.i.valid)
        connect(m, compute=compute.o, unload=unload.i)
        finished, finish = unload.o, None
        if config.finish is not None:
            m.submodules.finish = finish = config.finish.component()
            connect(m, unload=unload.o, finish=finish.i)
            finished = finish.o
        if config.distributor is not None:
            m.submodules.load = load = Distribute(config.distributor)
            connect(m, layer=wiring.flipped(self.load_i), load=load.i)
            connect(m, load=load.o, layer=wiring.flipped(self.load_o))
            parts = {"compute": compute, "finish": finish}
            for name, part in config.loaded_parts.items():
                for store in part.stores:
                    connect(m, load=getattr(load.writes, store.name), part=getattr(parts[name].writes, store.name))
        m.d.comb += window.room.eq(
            Cat(self._elaborate_reader(m, reader, finished, window) for reader in range(len(config.outputs))).all()
        )
        return m

    def _elaborate_reader(
        self, m: Module, reader: int, finished: wiring.PureInterface, window: wiring.Component
    ) -> Value:
        """Add a reader's FIFO, width converter and credit counter; return a bit: the next output fold's beats fit."""
        config = self.config
        regroup, o = config.regroups[reader], self.output_streams[reader]
        m.submodules[config.of_reader("fifo", reader)] = fifo = Fifo(config.fifos[reader])
        if regroup.needed:
            m.submodules[config.of_reader("regroup", reader)] = regrouped = Regroup(regroup)
        if regroup.always_ready:
            connect(m, finished=finished, regroup=regrouped.i)
            connect(m, regroup=regrouped.o, fifo=fifo.i)
        else:
            connect(m, finished=finished, fifo=fifo.i)
        if regroup.needed and not regroup.always_ready:
            join(m, source=fifo.o, sink=regrouped.i)
            connect(m, regroup=regrouped.o, layer=wiring.flipped(o))
        else:
            connect(m, fifo=fifo.o, layer=wiring.flipped(o))
        return count_credits(
            m,
            config.credits[reader],
            name=config.of_reader("credits", reader),
            fold=window.fold,
            start=window.start,
            returned=fifo.o.valid & fifo.o.ready,
        )
