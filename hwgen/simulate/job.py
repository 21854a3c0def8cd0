"""What is asked for: a run as the caller wants it, and what one simulator is told of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from hwgen import work
from hwgen.emit import stimuli
from hwgen.emit.verilog import Config, Factory, input_ports, output_ports
from hwgen.errors import InputError
from hwgen.gateware.stream import BeatFormat, Order, Port
from hwgen.progress import Listener
from hwgen.simulate.memory import Memory
from hwgen.simulators import DEFAULT, entry, names

LEAST_SHARE = 16
"""Frames that a simulation side by side with others has at least: fewer are not worth a start from reset."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How frames are to be sent through an accelerator.

    Parameters
    ----------
    simulator : str
        ``verilator`` and ``icarus`` run the Verilog that ``emit`` writes, ``amaranth`` the component itself.
    waves : path, optional
        Write waveforms there: ``.vcd``, or ``.fst`` (not with ``amaranth``), which is taken if the name has no ending.
        Of Verilator also what the layers' streams carry, and a save file of GTKWave (`hwgen.simulate.waves`).
    wave_frames : tuple of int, optional
        Record from the first cycle of this frame to the last one of that before the other; all if not given.
    wave_layers : tuple of str, optional
        Record these layers only; everything if not given.
    progress : bool or callable
        Show on stderr how far it is, or tell a function (`hwgen.progress`).
    stalls : tuple of float, optional
        Probabilities that source and sink stall in a cycle; neither ever does if not given. The first is that of all
        sources. Where there are several outputs, the second is that of all their sinks, or one more for each other sink
        says it one by one.
    seed : int
        Of the stalls: the same stalls in all simulators.
    taps : bool
        Also gather what leaves each layer (``config.taps`` and ``config.tap_orders`` say what these streams are), and
        count its steps.
    idle : int, optional
        Cycles without a transfer after which the design is called stuck.
    reset_at : int, optional
        Reset the design after so many cycles of a first attempt, which counts for nothing.
    component : callable, optional
        Makes another component than ``Accelerator``: ``component(config)``, ``component(config, taps=True)``.
    jobs : int, optional
        Simulations side by side, each from reset with its share of the frames; of Verilator only, without waves,
        stalls, taps or reset, and with at least 16 frames each. Cycles are then those of the first share. One if not
        given; on a cluster two for each that runs at a time.
    memory : Memory, optional
        Where the maps come from and go to; one that never stalls if not given.
    one_by_one : bool
        Read a frame only when the one before is written.
    beside : mapping of str to bytes, optional
        Files of a module of which ``component`` has an instance: its Verilog, ``NAME.v``, and memory files.
    cluster : str, optional
        Where simulations side by side run (`hwgen.work.pool`): on this machine if not given.

    Raises
    ------
    InputError
        If there is no such simulator, its waves can't be written there, a probability is out of range, or ``jobs`` is
        no positive integer.
    """

    simulator: str = DEFAULT
    waves: str | Path | None = None
    wave_frames: tuple[int, int] | None = None
    wave_layers: tuple[str, ...] | None = None
    progress: bool | Listener = False
    stalls: tuple[float, ...] | None = None
    seed: int = 0
    taps: bool = False
    idle: int | None = None
    reset_at: int | None = None
    component: Factory | None = None
    jobs: int | None = None
    memory: Memory = field(default_factory=Memory)
    one_by_one: bool = False
    beside: Mapping[str, bytes] = field(default_factory=dict)
    cluster: str | None = None

    def __post_init__(self) -> None:
        if self.beside and not entry(self.simulator).reads_verilog:
            able = names(lambda each: each.reads_verilog)
            raise InputError(f"simulator must be {able} for Verilog that is there already, not {self.simulator!r}")
        check_waves(self.wave_file, self.simulator)
        self._check_choice()
        work.check_count(self.jobs)
        if self.cluster is not None and not entry(self.simulator).is_parallel:
            able = names(lambda each: each.is_parallel)
            raise InputError(f"a cluster runs {able} only, not {self.simulator}")
        check_where(self.cluster, self.wave_file)
        # Probabilities that can't be are refused here; how many there must be depends on the outputs.
        self.draws(max(1, len(self.stalls or ()) - 1))

    @cached_property
    def wave_file(self) -> Path | None:
        """Where waveforms go, wherever the simulator runs."""
        if self.waves is None:
            return None
        path = Path(self.waves).absolute()
        return path if path.suffix else path.with_name(path.name + entry(self.simulator).wave_endings[-1])

    def _check_choice(self) -> None:
        """Of frames and layers of waves."""
        if self.wave_frames is None and self.wave_layers is None:
            return
        if self.wave_file is None or not entry(self.simulator).selects_waves:
            able = names(lambda each: each.selects_waves)
            raise InputError(f"frames and layers are chosen of waves of {able}: give waves, or leave the choice out")
        if self.wave_frames is not None:
            first, end = self.wave_frames
            if not 0 <= first < end:
                raise InputError(f"frames of waves must be FIRST:END, the first from 0 on, not {first}:{end}")

    def draws(self, outputs: int, inputs: int = 1) -> stimuli.Stalls:
        """The stalls of the sources of so many inputs, and of the sinks of so many outputs.

        Raises
        ------
        InputError
            If there are other probabilities than for these.
        """
        return stimuli.Stalls.make(self.stalls, self.seed, outputs, inputs)

    def shares(self, frames: int, default: int = 1) -> int:
        """Into how many simulations side by side so many frames are parted, if ``jobs`` does not say it."""
        plain = entry(self.simulator).is_parallel and not (self.waves or self.stalls or self.taps or self.reset_at)
        return max(1, min(self.jobs or default, frames // LEAST_SHARE)) if plain else 1


def check_where(cluster: str | None, waves: Path | None) -> None:
    """Refuse waves of what a cluster runs.

    Raises
    ------
    InputError
    """
    if cluster is not None and waves is not None:
        raise InputError("waves are of a simulation on this machine: leave them or the cluster out")


def check_waves(waves: Path | None, name: str) -> None:
    """Refuse a file for waveforms that the simulator of a name can't write.

    Raises
    ------
    InputError
        If it doesn't end as the simulator's do, or its folder is not there.
    """
    endings = entry(name).wave_endings
    if waves is None:
        return
    if waves.suffix not in endings:
        raise InputError(f"waves of {name} must end in {' or '.join(endings)}, not {waves.name!r}")
    if not waves.parent.is_dir():
        raise InputError(f"waves can't be written: there is no folder {waves.parent}")


@dataclass(frozen=True, kw_only=True)
class Job:
    """What one simulator is asked: one run.

    In each cycle of the run, which begin when reset is released: all sides draw whether they stall; each source offers
    its next beat unless it stalls or the memory has not delivered it (once offered, a beat stays); each sink is ready
    unless it stalls or the memory has no room; the outputs of the design are sampled at the end of the cycle. While
    nothing is offered the payload's bits are all one. After the last expected beat is written a run goes on for
    ``emit.testbench.DRAIN`` cycles, in which none may follow. ``simulate.memory`` says what the memory does.

    Parameters
    ----------
    config : AcceleratorConfig
    payloads : sequence of ndarray
        What to send into each input, as ``stimuli.pack`` gives it.
    frames : int
        How many these are.
    options : Options
    idle : int
        Cycles without any transfer after which the design is stuck.
    taps : tuple of (BeatFormat, Order)
        Streams to watch.
    tick : callable
        Told the output beats so far, now and then.
    say : callable
        Told what is being done before there are any.
    """

    config: Config
    payloads: Sequence[np.ndarray]
    frames: int
    options: Options
    idle: int
    taps: tuple[tuple[BeatFormat, Order], ...] = ()
    tick: Callable[[int], None] = lambda beats: None
    say: Callable[[str], None] = lambda step: None

    @property
    def beats_out(self) -> int:
        """Output beats to expect."""
        return self.frames * sum(map(len, self.writes))

    @property
    def beats_in(self) -> int:
        """Input beats to send."""
        return sum(map(len, self.payloads))

    @cached_property
    def inputs(self) -> tuple[Port, ...]:
        """The streams that enter."""
        return input_ports(self.config)

    @cached_property
    def outputs(self) -> tuple[Port, ...]:
        """The streams that leave."""
        return output_ports(self.config)

    @cached_property
    def stalls(self) -> stimuli.Stalls:
        """The stalls of each input's source and of each output's sink."""
        return self.options.draws(len(self.outputs), len(self.inputs))

    @cached_property
    def reads(self) -> tuple[np.ndarray, ...]:
        """Bytes of each beat of a frame, input by input."""
        return tuple(stimuli.beat_bytes(port.beat, port.order) for port in self.inputs)

    @cached_property
    def writes(self) -> tuple[np.ndarray, ...]:
        """Bytes of each beat of a frame, output by output."""
        return tuple(stimuli.beat_bytes(port.beat, port.order) for port in self.outputs)
