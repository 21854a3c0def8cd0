"""One layer of a streaming accelerator: line buffer, arithmetic, FIFO, and the credits that hold them together."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product, repeat
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from amaranth import Cat, Module, Shape, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect

from hwgen.errors import ConfigError
from hwgen.gateware.cost import Resources
from hwgen.gateware.credits import CreditsConfig, count_credits
from hwgen.gateware.fifo import Fifo, FifoConfig
from hwgen.gateware.line_buffer import LineBuffer, LineBufferConfig
from hwgen.gateware.load.distribute import Distribute, DistributeConfig
from hwgen.gateware.load.store import CHAIN, Store
from hwgen.gateware.lookup import check_place, delayed
from hwgen.gateware.regroup import Regroup, RegroupConfig
from hwgen.gateware.stream import BeatFormat, Order, at_pixel, channels_layout, join, numbered, pipeline_ports
from hwgen.gateware.unload import Unload, UnloadConfig


class ComponentConfig(Protocol):
    """The configuration of a component of a layer."""

    @cached_property
    def resources(self) -> Resources:
        """What it takes of a device, as estimated."""
        ...

    def component(self) -> Any:
        """The hardware, an Amaranth component."""
        ...


class Compute(ComponentConfig, Protocol):
    """The role of a layer's arithmetic: the steps of an output fold in, the results of the fold's channels out.

    A new kind of arithmetic is a new file with such a configuration, a frozen dataclass whose ``window`` is a field,
    and its component. That has two ports, both streams that are always ready: ``i`` takes a step of the window
    (`LineBufferConfig.step_layout`) in any cycle; ``o`` gives results of shape ``result``,
    ``[lane][pixel]``, ``latency`` cycles after the last step of a fold.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def window(self) -> Any:
        """Where the steps come from: a line buffer's configuration, or that of a walk without one (`JoinConfig`)."""
        ...

    @property
    def lanes(self) -> int:
        """``Tm``: output channels of a fold."""
        ...

    @property
    def result(self) -> Shape:
        """Shape of one result."""
        ...

    @property
    def latency(self) -> int:
        """Cycles from the last step of a fold to its results."""
        ...

    @property
    def multipliers(self) -> int:
        """DSP slices."""
        ...

    @property
    def weight_memory(self) -> str | None:
        """Where the weights lie, ``lut`` or ``block`` RAM; ``None`` where there are none."""
        ...

    @property
    def window_products(self) -> int:
        """Products of weights and activations of all output channels at one window."""
        ...


AnyCompute = TypeVar("AnyCompute", bound=Compute)


class Arithmetic(wiring.Component, Generic[AnyCompute]):
    """The component of a `Compute`, with its two ports.

    Parameters
    ----------
    config : Compute
    ports : Member
        More ports, by their names.
    """

    def __init__(self, config: AnyCompute, **ports: wiring.Member):
        self._config = config
        results = channels_layout(config.result, config.lanes, config.window.pixels)
        super().__init__({**pipeline_ports(config.window.step_layout, results), **ports})

    @property
    def config(self) -> AnyCompute:
        return self._config


class Elementwise(Arithmetic[AnyCompute]):
    """Arithmetic that makes each value of a step by itself, ``config.latency`` cycles later."""

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
        """Add what all values of a step share."""

    @abstractmethod
    def elaborate_value(self, m: Module, name: str, lane: int, pixel: int) -> Value:
        """Return the value of a lane and a pixel; names of its signals and submodules begin with ``name``."""


class Weightless:
    """What arithmetic without weights says of itself: as many lanes leave as come in."""

    window: Any

    multipliers = 0
    #: Where the weights lie: there are none.
    weight_memory = None
    #: Products at a window.
    window_products = 0

    @property
    def lanes(self) -> int:
        return self.window.input.lanes


class Finish(ComponentConfig, Protocol):
    """The role of what makes outputs of the results of a layer's arithmetic, a beat of the FIFO at a time.

    Its component has two ports, both streams that are always ready: ``i`` takes a beat in any cycle, ``o`` gives its
    outputs ``latency`` cycles later. Lanes without a channel leave as 0.
    """

    @property
    def latency(self) -> int:
        """Cycles from a beat to its outputs."""
        ...

    @property
    def multipliers(self) -> int:
        """DSP slices."""
        ...


@dataclass(frozen=True, kw_only=True)
class LayerConfig:
    """The hardware of one layer.

    Parameters
    ----------
    name : str
        From the model.
    compute : Compute
        The arithmetic; its ``window`` is the layer's line buffer.
    finish : Finish or None
        What makes outputs of the sums; ``None`` where they are outputs already (max pooling, sums that have their
        bias).
    fifo_lanes : int
        ``r``: channels of a beat in the FIFO, at least ``ceil(Tm / steps of a fold)``.
    fifo_depths : tuple of int
        Credits of the FIFO in front of each reader of the output: beats stored or in flight; at least those of one
        output fold.
    outputs : tuple of BeatFormat
        The stream that leaves to each reader: all carry the same map, with lanes of their own.
    fifos_in : tuple of (str or None)
        Where the beats of each FIFO lie, ``lut`` or ``block`` RAM; empty if all lie where their depths say.

    Raises
    ------
    ConfigError
        If the parts don't fit each other.
    """

    name: str
    compute: Compute
    finish: Finish | None
    fifo_lanes: int
    fifo_depths: tuple[int, ...]
    outputs: tuple[BeatFormat, ...]
    fifos_in: tuple[str | None, ...] = ()

    #: Cycles from a beat leaving the FIFO to the start of the output fold that waits for its credit.
    credit_delay = 1
    #: Whether the input goes into a line buffer.
    has_line_buffer = True
    #: Whether rows inside a map wait for each other in the same way, whichever they are.
    rows_alike = True
    #: Cycles that the largest pyramid takes; ``None`` where there are no pyramids.
    pyramid_cycles: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        if not self.outputs or len(self.outputs) != len(self.fifo_depths):
            raise ConfigError(f"{self.name}: outputs must be one or more, with a FIFO each, not {self.outputs!r}")
        if len(self.fifos_in) not in (0, len(self.fifo_depths)):
            raise ConfigError(f"{self.name}: fifos_in must be empty or one for each FIFO, not {self.fifos_in!r}")
        for depth, where in zip(self.fifo_depths, self.fifos_in, strict=False):
            check_place(f"{self.name}: fifos_in", where, depth)
        for output in self.outputs:
            if output.pixels != self.pixels:
                raise ConfigError(f"{self.name}: output.pixels must be {self.pixels}, not {output.pixels!r}")
        if max(self.fold_beats) > self.window.steps:
            raise ConfigError(
                f"{self.name}: fifo_lanes must be at least {-(-self.compute.lanes // self.window.steps)}, "
                f"not {self.fifo_lanes!r}"
            )
        for depth in self.fifo_depths:
            if depth < max(self.fold_beats):
                raise ConfigError(
                    f"{self.name}: fifo_depth must be at least {max(self.fold_beats)}, the beats of one output fold, "
                    f"not {depth!r}"
                )

    @property
    def window(self) -> LineBufferConfig:
        return self.compute.window

    @property
    def loaded_parts(self) -> dict[str, Any]:
        """Configurations that have memories which are loaded at run time, by name."""
        parts = {"compute": self.compute, "finish": self.finish}
        return {name: part for name, part in parts.items() if getattr(part, "stores", ())}

    @property
    def stores(self) -> tuple[Store, ...]:
        """The memories that are loaded at run time."""
        return tuple(store for part in self.loaded_parts.values() for store in part.stores)

    @property
    def stored_contents(self) -> tuple[tuple[int, ...], ...]:
        """What each of ``stores`` holds before anything is loaded."""
        return tuple(contents for part in self.loaded_parts.values() for contents in part.stored_contents)

    @property
    def distribute(self) -> DistributeConfig | None:
        """What brings words to ``stores``."""
        return DistributeConfig(stores=self.stores) if self.stores else None

    @property
    def blank(self) -> LayerConfig:
        """The same hardware without what is loaded into it."""
        return replace(self, **{name: part.blank for name, part in self.loaded_parts.items()})

    @property
    def inputs(self) -> tuple[BeatFormat, ...]:
        """The streams that come in."""
        return (self.window.input,)

    @property
    def output(self) -> BeatFormat:
        """The stream that leaves to the first reader."""
        return self.outputs[0]

    @property
    def input_order(self) -> Order:
        """In which order the pixels of the input come."""
        return self.window.input.raster

    @property
    def output_order(self) -> Order:
        """In which order the pixels of the output leave."""
        return self.output.raster

    @property
    def pixels(self) -> int:
        """``Tp``: pixels of an output beat."""
        return self.window.pixels

    @cached_property
    def unload(self) -> UnloadConfig:
        return UnloadConfig(
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
        """Channels of each output fold, where they don't follow from the groups; otherwise none."""
        return ()

    @cached_property
    def fold_beats(self) -> tuple[int, ...]:
        """Beats that each output fold of a pixel puts into the FIFO."""
        return self.unload.fold_beats

    @property
    def start_up(self) -> int:
        """Cycles after a reset before the first beat can be taken."""
        return 0

    @property
    def windows(self) -> int:
        """Groups of ``Tp`` windows that are computed in a frame."""
        return self.window.windows

    @property
    def beats_in(self) -> int:
        """Beats of a frame that come in; of several inputs the most."""
        return self.window.input.beats

    @property
    def input_beats(self) -> tuple[int, ...]:
        """Beats of a frame that come in at each input."""
        return (self.beats_in,)

    @property
    def beats(self) -> int:
        """Beats of a frame in the FIFO."""
        return self.windows * sum(self.fold_beats)

    @property
    def beats_out(self) -> int:
        """Beats of a frame that leave to the first reader."""
        return self.windows * self.output.folds

    @property
    def least_rows(self) -> int:
        """The fewest ``window.rows`` that the layer works with: those of one window."""
        return self.window.least_rows

    @cached_property
    def fifos(self) -> tuple[FifoConfig, ...]:
        """The FIFO in front of each reader."""
        return tuple(
            FifoConfig(
                lanes=self.fifo_lanes,
                bits=self.output.bits,
                signed=self.output.signed,
                beats=self.beats,
                depth=depth,
                pixels=self.pixels,
                memory_in=where,
            )
            for depth, where in zip(self.fifo_depths, self.fifos_in or repeat(None), strict=False)
        )

    @cached_property
    def regroups(self) -> tuple[RegroupConfig, ...]:
        """From the beats of the FIFO to those of each reader."""
        counts = tuple(len(beat) for beat in self.unload.beats)
        return tuple(RegroupConfig(counts=counts, lanes=self.fifo_lanes, output=output) for output in self.outputs)

    @property
    def credits(self) -> tuple[CreditsConfig, ...]:
        """Those of each FIFO: an output fold starts when all of them have room."""
        return tuple(CreditsConfig(depth=depth, claims=self.fold_beats) for depth in self.fifo_depths)

    @property
    def walk(self) -> dict[str, ComponentConfig]:
        """What takes the input and walks its windows, by name."""
        return {"window": self.window}

    @property
    def components(self) -> dict[str, ComponentConfig]:
        """The configurations of all components, by name."""
        return {
            **self.walk,
            "compute": self.compute,
            "unload": self.unload,
            **({} if self.finish is None else {"finish": self.finish}),
            **({} if self.distribute is None else {"load": self.distribute}),
            **self._behind,
        }

    @property
    def _behind(self) -> dict[str, ComponentConfig]:
        """What stands in front of each reader."""
        found: dict[str, ComponentConfig] = {}
        for number, (fifo, regroup, credits) in enumerate(zip(self.fifos, self.regroups, self.credits, strict=True)):
            found[self.of_reader("fifo", number)] = fifo
            if regroup.needed:
                found[self.of_reader("regroup", number)] = regroup
            found[self.of_reader("credits", number)] = credits
        return found

    def of_reader(self, name: str, number: int) -> str:
        """The name of what there is for each reader; ``name`` itself if that is one."""
        return numbered(name, number, len(self.outputs))

    @cached_property
    def resources(self) -> Resources:
        """What all components together take of a device, as estimated."""
        return sum((part.resources for part in self.components.values()), Resources())

    @property
    def input_ports(self) -> tuple[str, ...]:
        """Names of the layer's ports that take its inputs."""
        return tuple(numbered("i", number, len(self.inputs)) for number in range(len(self.inputs)))

    @property
    def output_ports(self) -> tuple[str, ...]:
        """Names of the layer's ports that give its output."""
        return tuple(self.of_reader("o", number) for number in range(len(self.outputs)))

    def walk_component(self) -> Any:
        """The hardware of ``walk``, with a line buffer's ports."""
        return LineBuffer(self.window)

    @property
    def pipeline_latency(self) -> int:
        """Cycles from the start of an output fold to its first beat entering the FIFO."""
        finish = self.finish.latency if self.finish else 0
        return self.window.steps - 1 + self.window.latency + self.compute.latency + self.unload.latency + finish

    @property
    def cycles(self) -> int:
        """Cycles a frame takes when neither neighbour makes the layer wait."""
        return max(self.window.windows * self.window.window_cycles, self.window.input.beats)

    @property
    def window_steps(self) -> int:
        """Steps of the arithmetic for a group of ``Tp`` windows; a walk may take more cycles than it gives steps."""
        return self.window.window_cycles

    def with_rows(self, rows: int) -> LayerConfig:
        """The same with so many rows in the line buffer."""
        return replace(self, compute=replace(self.compute, window=replace(self.window, rows=rows)))

    @property
    def credit_cycles(self) -> int:
        """Cycles of a frame in which the layer waits for credits at most, if beats are taken as soon as they are there.

        With a FIFO of so many beats, a beat's credit comes back a pipeline's latency after it was claimed.
        """
        round_trip = self.pipeline_latency + FifoConfig.latency + self.credit_delay
        return -(-self.beats // min(self.fifo_depths)) * round_trip

    @property
    def multipliers(self) -> int:
        return self.compute.multipliers + (self.finish.multipliers if self.finish else 0)


class Layer(wiring.Component):
    """A layer from stream to stream.

    The arithmetic never stalls: an output fold starts when the FIFO has room for all it will produce.

    Parameters
    ----------
    config : LayerConfig
    busy : bool
        Let the steps be watched.

    Members
    -------
    i : In(stream)
        The input map, ``Tn`` channels a beat; ``i_0``, ``i_1`` .. if there are several.
    o : Out(stream)
        The output map; ``o_0``, ``o_1`` .. if it has several readers.
    load_i, load_o : In(stream, always ready), Out(stream, always ready)
        Where weights are loaded: a link of the chain that brings them (`Distribute`).
    busy : Out(1)
        With ``busy``: the arithmetic takes a step.
    """

    def __init__(self, config: LayerConfig, *, busy: bool = False):
        self._config = config
        self._busy = busy
        members = {
            **{port: In(beat.signature) for port, beat in zip(config.input_ports, config.inputs, strict=True)},
            **{port: Out(beat.signature) for port, beat in zip(config.output_ports, config.outputs, strict=True)},
        }
        if config.stores:
            members |= {"load_i": In(CHAIN), "load_o": Out(CHAIN)}
        super().__init__(members | {"busy": Out(1)} if busy else members)

    @property
    def config(self) -> LayerConfig:
        return self._config

    @property
    def take(self) -> list[wiring.PureInterface]:
        """The ports that take the inputs, in order."""
        return [getattr(self, port) for port in self.config.input_ports]

    @property
    def give(self) -> list[wiring.PureInterface]:
        """The ports that give the output, reader by reader."""
        return [getattr(self, port) for port in self.config.output_ports]

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.window = window = config.walk_component()
        m.submodules.compute = compute = config.compute.component()
        m.submodules.unload = unload = Unload(config.unload)
        for port, stream in zip(config.input_ports, self.take, strict=True):
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
        if config.distribute is not None:
            m.submodules.load = load = Distribute(config.distribute)
            connect(m, layer=wiring.flipped(self.load_i), load=load.i)
            connect(m, load=load.o, layer=wiring.flipped(self.load_o))
            parts = {"compute": compute, "finish": finish}
            for name, part in config.loaded_parts.items():
                for store in part.stores:
                    connect(m, load=getattr(load.writes, store.name), part=getattr(parts[name].writes, store.name))
        m.d.comb += window.room.eq(
            Cat(self._elaborate_reader(m, number, finished, window) for number in range(len(config.outputs))).all()
        )
        return m

    def _elaborate_reader(
        self, m: Module, number: int, finished: wiring.PureInterface, window: wiring.Component
    ) -> Value:
        """The FIFO in front of a reader; whether it has room for the output fold that starts next."""
        config = self.config
        regroup, o = config.regroups[number], self.give[number]
        m.submodules[config.of_reader("fifo", number)] = fifo = Fifo(config.fifos[number])
        connect(m, finished=finished, fifo=fifo.i)
        if regroup.needed:
            m.submodules[config.of_reader("regroup", number)] = regrouped = Regroup(regroup)
            join(m, source=fifo.o, sink=regrouped.i)
            connect(m, regroup=regrouped.o, layer=wiring.flipped(o))
        else:
            connect(m, fifo=fifo.o, layer=wiring.flipped(o))
        return count_credits(
            m,
            config.credits[number],
            name=config.of_reader("credits", number),
            fold=window.fold,
            start=window.start,
            returned=fifo.o.valid & fifo.o.ready,
        )
