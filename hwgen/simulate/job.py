"""Options of a simulation, and description of one run (job) for any simulator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from hwgen import work
from hwgen.errors import InputError
from hwgen.gateware.circuit_ports import Config, input_ports, output_ports
from hwgen.gateware.stream import BeatFormat, Order, Port
from hwgen.progress import Listener
from hwgen.simulate import stimuli
from hwgen.simulate.memory import Memory
from hwgen.simulators import DEFAULT, entry, names
from hwgen.verilog.emitted import Factory

MIN_SHARE_FRAMES = 16
"""Minimum number of frames of each of several parallel simulations; fewer are not worth a start from reset."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a simulation: simulator, waveforms, random stalls, off-chip memory and parallel jobs.

    Parameters
    ----------
    simulator : str
        Name of the simulator. ``verilator`` and ``icarus`` simulate the Verilog that ``emit`` writes, ``amaranth``
        simulates the component itself.
    waves : path, optional
        Path of the waveform file: ``.vcd``, or ``.fst`` (not with ``amaranth``). A name without an ending gets
        ``.fst``, with ``amaranth`` ``.vcd``. With Verilator the waves also show the values of the layers' streams, and
        a save file of GTKWave is written (`hwgen.simulate.waves`).
    wave_frames : tuple of int, optional
        First frame that is recorded, and the frame after the last one. The default is all frames.
    wave_layers : tuple of str, optional
        Names of the layers that are recorded. The default is the whole design.
    progress : bool or callable
        ``True`` to show progress on stderr, or a function that receives it (`hwgen.progress`).
    stalls : tuple of float, optional
        Probabilities that a source or a sink stalls in a cycle. The default is 0. The first value is for all sources,
        the second for all sinks. A design with several outputs can also have one value for each sink.
    seed : int
        Seed of the random stalls. All simulators have the same stalls.
    taps : bool
        Whether to record the stream that leaves each layer (formats are in ``config.taps``, orders in
        ``config.tap_orders``), and to count the steps of its arithmetic.
    idle : int, optional
        Number of cycles without a transfer after which the design counts as stuck.
    reset_at : int, optional
        Number of cycles after which a first attempt is interrupted by a reset. The result does not count this attempt.
    component : callable, optional
        Factory of another component than ``Accelerator``, called as ``component(config)`` or
        ``component(config, taps=True)``.
    jobs : int, optional
        Number of parallel simulations, each from reset with its share of the frames. Only with Verilator, without
        waves, stalls, taps or reset, and with at least 16 frames each. Cycles are then from the first share. The
        default is one, and on a cluster two for each simulation that the cluster runs at a time.
    memory : Memory, optional
        Off-chip memory with the input and output maps. The default never makes the design wait.
    one_by_one : bool
        Whether each frame is read only after the previous frame is written.
    beside : mapping of str to bytes, optional
        Files of a module that ``component`` instantiates: its Verilog, ``NAME.v``, and memory files.
    cluster : str, optional
        Cluster that runs parallel simulations (`hwgen.work.pool`). The default is this machine.

    Raises
    ------
    InputError
        If there is no simulator of this name, it can't write the waveform file, a probability is out of range, or
        ``jobs`` is not a positive integer.
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
            able = names(lambda simulator: simulator.reads_verilog)
            raise InputError(f"existing Verilog runs in {able} only, not in {self.simulator}: give another simulator")
        check_waves(self.wave_file, self.simulator)
        self._check_choice()
        work.check_count(self.jobs)
        if self.cluster is not None and not entry(self.simulator).is_parallel:
            able = names(lambda simulator: simulator.is_parallel)
            raise InputError(f"a cluster runs {able} only, not {self.simulator}")
        check_cluster(self.cluster, self.wave_file)
        # Refuse probabilities out of range here. Their number is checked later, when the outputs are known.
        self.draws(max(1, len(self.stalls or ()) - 1))

    @cached_property
    def wave_file(self) -> Path | None:
        """Absolute path of the waveform file, with the simulator's ending; ``None`` without waves."""
        if self.waves is None:
            return None
        path = Path(self.waves).absolute()
        return path if path.suffix else path.with_name(path.name + entry(self.simulator).wave_endings[-1])

    def _check_choice(self) -> None:
        """Refuse ``wave_frames`` or ``wave_layers`` without waves, with an unable simulator, or with an empty range.

        Raises
        ------
        InputError
            If there are no waves, the simulator always records everything, or the frames are not a range.
        """
        if self.wave_frames is None and self.wave_layers is None:
            return
        if self.wave_file is None or not entry(self.simulator).selects_waves:
            able = names(lambda simulator: simulator.selects_waves)
            raise InputError(f"a choice of frames or layers needs waves of {able}: give waves, or leave out the choice")
        if self.wave_frames is not None:
            first, end = self.wave_frames
            if not 0 <= first < end:
                raise InputError(f"frames of waves must be FIRST:END with 0 <= FIRST < END, not {first}:{end}")

    def draws(self, outputs: int, inputs: int = 1) -> stimuli.Stalls:
        """Return the random `Stalls` (parameters) of ``inputs`` input sources and ``outputs`` output sinks.

        Raises
        ------
        InputError
            If the number of probabilities does not fit the number of outputs, or one is out of range.
        """
        return stimuli.Stalls.make(self.stalls, self.seed, outputs, inputs)

    def shares(self, frames: int, default: int = 1) -> int:
        """Return how many parallel simulations share ``frames`` frames; ``default`` if ``jobs`` is ``None``.

        The number is 1 if the options or the simulator exclude parallel simulations.
        """
        plain = entry(self.simulator).is_parallel and not (self.waves or self.stalls or self.taps or self.reset_at)
        return max(1, min(self.jobs or default, frames // MIN_SHARE_FRAMES)) if plain else 1


def check_cluster(cluster: str | None, waves: Path | None) -> None:
    """Refuse to record waves in a simulation that runs on a cluster.

    Raises
    ------
    InputError
        If there are a cluster and a waveform file.
    """
    if cluster is not None and waves is not None:
        raise InputError("waves can't be recorded on a cluster: leave out the waves or the cluster")


def check_waves(waves: Path | None, name: str) -> None:
    """Refuse a waveform file whose ending the simulator ``name`` can't write, or whose folder is missing.

    Raises
    ------
    InputError
        If the file does not have one of the simulator's endings, or its folder is missing.
    """
    endings = entry(name).wave_endings
    if waves is None:
        return
    if waves.suffix not in endings:
        raise InputError(f"waves of {name} must end in {' or '.join(endings)}, not {waves.name!r}")
    if not waves.parent.is_dir():
        raise InputError(f"waves can't be written: folder {waves.parent} does not exist; create it first")


@dataclass(frozen=True, kw_only=True)
class SimulationJob:
    """Description of one simulation run: the accelerator, its input beats, and the options.

    Cycles are counted from the release of reset. In each cycle:

    1. Each source and each sink draws at random whether it stalls.
    2. Each source offers its next beat, unless it stalls or the memory has not delivered the beat. A beat that was
       offered stays offered until it is accepted. While nothing is offered, all bits of the payload are 1.
    3. Each sink is ready, unless it stalls or the memory has no room.
    4. The outputs of the design are sampled at the end of the cycle.

    After the last expected beat is written, the run goes on for `hwgen.simulate.testbench.DRAIN` cycles. Any further
    output beat is an error. `hwgen.simulate.memory` describes the memory.

    Parameters
    ----------
    config : AcceleratorConfig
        Configuration of the accelerator.
    payloads : sequence of ndarray
        Beats for each input, as ``stimuli.pack`` returns them.
    frames : int
        Number of frames in the payloads.
    options : Options
        Options of the simulation.
    idle : int
        Number of cycles without any transfer after which the design counts as stuck.
    taps : tuple of (BeatFormat, Order)
        Format and order of the layers' streams that are recorded.
    tick : callable
        Function that receives the number of output beats so far, now and then.
    say : callable
        Function that receives the current step before there are output beats.
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
        """Number of beats that the run must produce, over all outputs and frames."""
        return self.frames * sum(map(len, self.writes))

    @property
    def beats_in(self) -> int:
        """Number of beats that the run sends, over all inputs and frames."""
        return sum(map(len, self.payloads))

    @cached_property
    def inputs(self) -> tuple[Port, ...]:
        """Tuple of the `Port` (name, beat format, pixel order) of each input stream of the design."""
        return input_ports(self.config)

    @cached_property
    def outputs(self) -> tuple[Port, ...]:
        """Tuple of the `Port` (name, beat format, pixel order) of each output stream of the design."""
        return output_ports(self.config)

    @cached_property
    def stalls(self) -> stimuli.Stalls:
        """`Stalls` (probabilities and seeds): random stalls of each input's source and each output's sink."""
        return self.options.draws(len(self.outputs), len(self.inputs))

    @cached_property
    def reads(self) -> tuple[np.ndarray, ...]:
        """Tuple of bytes that each input beat of a frame takes in memory: an array ``(beats,)`` per input."""
        return tuple(stimuli.beat_bytes(port.beat, port.order) for port in self.inputs)

    @cached_property
    def writes(self) -> tuple[np.ndarray, ...]:
        """Tuple of bytes that each output beat of a frame takes in memory: an array ``(beats,)`` per output."""
        return tuple(stimuli.beat_bytes(port.beat, port.order) for port in self.outputs)
