"""Simulation of an accelerator, in one or several parallel simulations, and of several accelerators in turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock

import numpy as np

from hwgen import work
from hwgen.errors import InputError
from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.circuit_ports import Config, input_ports, output_ports
from hwgen.gateware.names import identifier
from hwgen.network.golden import Frames, by_input
from hwgen.progress import Step, followed, listener
from hwgen.simulate import stimuli, waves
from hwgen.simulate.job import Options, SimulationJob
from hwgen.simulate.loading import Loading, LoadingConfig
from hwgen.simulate.result import Raw, Run, conclude, join
from hwgen.simulate.simulator import Simulator, simulator
from hwgen.simulate.testbench import patience
from hwgen.simulators import entry
from hwgen.verilog.emitted import files

_DEFAULTS = Options()


def run(config: Config, frames: Frames, options: Options = _DEFAULTS) -> Run:
    """Return a `Run`: the checked result of simulating an accelerator that receives frames back to back.

    An accelerator that begins without weights loads them first.

    Parameters
    ----------
    config : AcceleratorConfig
        Configuration of the accelerator.
    frames : ndarray, or sequence of ndarray
        Integers ``(n, C, H, W)`` of the input's type. For several inputs, one array of ``n`` frames each.
    options : Options
        Options of the simulation.

    Raises
    ------
    InputError
        If frames or options don't fit the accelerator.
    ToolError
        If a simulator or compiler is missing or fails.
    CheckError
        If the design got stuck or broke the rules of a stream.
    """
    config, options = _with_load(config, options)
    ports, values_by_input = output_ports(config), by_input(frames)
    count = _count_frames(config, values_by_input)
    for port in ports:
        stimuli.dtype(port.beat)
    _check_waves(config, options, count)
    options.draws(len(ports))  # refuse a wrong number of probabilities at once
    with followed(options.progress), ExitStack() as stack:
        cluster = None if options.cluster is None else stack.enter_context(work.pool(options.cluster))
        num_shares = options.shares(count, cluster.count * work.SHARES if cluster else 1)
        bar = _Bar(count * sum(port.beats for port in ports), config.name)
        shares = zip(*(np.array_split(values, num_shares) for values in values_by_input), strict=True)
        jobs = [_make_job(config, share, options, index, bar) for index, share in enumerate(shares)]
        raws = _raws(config, options, jobs, cluster)
    return join([conclude(job, raw, options.simulator) for job, raw in zip(jobs, raws, strict=True)])


def _with_load(config: Config, options: Options) -> tuple[Config, Options]:
    """Return a pair: configuration and options of a module that first loads weights, if the accelerator has none."""
    if options.component is not None or not isinstance(config, AcceleratorConfig) or config.first_load is None:
        return config, options
    return LoadingConfig(config, config.first_load), replace(options, component=Loading)


def _check_waves(config: Config, options: Options, frames: int) -> None:
    """Refuse waves of frames and layers that don't exist.

    Raises
    ------
    InputError
        If there is no such layer, or the first recorded frame is after the last frame.
    """
    waves.chosen(waves.streams(config), options.wave_layers)
    if options.wave_frames is not None and options.wave_frames[0] >= frames:
        raise InputError(f"waves can't begin at frame {options.wave_frames[0]}: frames are 0 to {frames - 1}")


def _count_frames(config: Config, frames: Sequence[np.ndarray]) -> int:
    """Check that all inputs have equally many frames, and return the number of frames.

    Raises
    ------
    InputError
        If an input has no frames, or the inputs have different numbers of frames.
    """
    ports, counts = input_ports(config), {len(values) for values in frames}
    if len(frames) != len(ports) or len(counts) != 1:
        names = ", ".join(port.name for port in ports)
        own = " and ".join(str(len(values)) for values in frames)
        raise InputError(
            f"frames must have one array per input ({names}), all with the same number of frames, not {own or 'none'}"
        )
    return counts.pop()


def _make_job(config: Config, frames: Sequence[np.ndarray], options: Options, index: int, bar: _Bar) -> SimulationJob:
    """Return the job (`SimulationJob`) of one simulation, with its share of each input's frames as beats."""
    return SimulationJob(
        config=config,
        payloads=[
            stimuli.pack(values, port.beat, port.order)
            for values, port in zip(frames, input_ports(config), strict=True)
        ],
        frames=len(frames[0]),
        options=options,
        idle=_idle(config, options) if options.idle is None else options.idle,
        taps=tuple(zip(config.taps, config.tap_orders, strict=True)) if options.taps else (),  # type: ignore[attr-defined]
        tick=partial(bar.update, index),
        say=bar.say,
    )


def _idle(config: Config, options: Options) -> int:
    """Return the number of cycles without a transfer after which a simulated accelerator must be in a deadlock.

    It includes the time that the memory needs to read a beat and to write its whole queue.
    """
    memory, waits = options.memory, 0
    if memory.may_stall:
        sources = input_ports(config)
        ends = (*sources, *output_ports(config))
        largest = max(int(stimuli.beat_bytes(port.beat, port.order).max()) for port in ends)
        waits = memory.latency + (memory.queue + 1) * memory.beat_cycles(largest, len(sources) + 1)
    return patience(config, options.stalls, waits)


def _raws(config: Config, options: Options, jobs: Sequence[SimulationJob], cluster: work.TaskPool | None) -> list[Raw]:
    """Compile the simulator, run all jobs here or on a cluster, and return a list of their raw results in order."""
    used = simulator(options.simulator)
    if not entry(options.simulator).reads_verilog:
        return [used.run(job, {}, "") for job in jobs]
    elsewhere = cluster if len(jobs) > 1 else None
    if elsewhere is None:
        used.check_tools()  # at once, because writing the Verilog can take long
    with work.pool(count=1, programs=True) if elsewhere is None else nullcontext(elsewhere) as pool:
        ready = [pool.submit(used.prepare, options.wave_file) for _ in range(pool.count)]  # one for each worker
        content, top = _sources(config, options, used, jobs[0].say), identifier(config.name)
        for future in ready:
            future.result()
    if options.wave_file and (watched := _streams_to_show(config, options)):  # only when all tools have been checked
        waves.write_save_file(options.wave_file, top, watched, options.wave_layers)
    if elsewhere is not None:
        return _run_on_cluster(elsewhere, jobs, content, top)
    if len(jobs) > 1:
        used.build(jobs[0], content, top)  # once, not in all workers at the same time
    with work.pool(count=len(jobs), programs=True) as pool:
        return work.run(pool, partial(_simulated, used, content, top), jobs)


def _sources(config: Config, options: Options, used: Simulator, say: Callable[[str], None]) -> Mapping[str, bytes]:
    """Return the files that a simulator reads, bytes by file name: Verilog (with wave decoders), memory files."""
    top, beside = identifier(config.name), options.beside
    watched = _streams_to_show(config, options)
    content = files(config, component=options.component, taps=options.taps or bool(watched), say=say)
    content |= {name: text for name, text in beside.items() if not name.endswith(".v")}
    # All Verilog goes into one file, because a simulator is compiled from one file.
    content[f"{top}.v"] += b"".join(b"\n" + text for name, text in beside.items() if name.endswith(".v"))
    if watched:
        content = waves.with_decoders(content, top, watched)
    return used.sources(content, top)


def _streams_to_show(config: Config, options: Options) -> Sequence[waves.Watched]:
    """Return a sequence of `Watched`: layers' streams that waves decode; none without waves or with existing Verilog.

    A simulator that records no choice of layers shows no decoded streams either.
    """
    is_tapped = options.component in (None, Loading) and not options.beside
    return waves.streams(config) if entry(options.simulator).selects_waves and options.wave_file and is_tapped else ()


def _simulated(used: Simulator, content: Mapping[str, bytes], top: str, job: SimulationJob) -> Raw:
    """Return the `Raw` result of one job, simulated with given files and top module; picklable."""
    return used.run(job, content, top)


def _run_on_cluster(
    cluster: work.TaskPool, jobs: Sequence[SimulationJob], content: Mapping[str, bytes], top: str
) -> list[Raw]:
    """Run all jobs on a cluster, and return, as a list, the raw result of each in order.

    The cluster's workers compile the simulator themselves. Progress is reported once per finished job.
    """
    jobs[0].say("compiling and simulating on the cluster")
    plain = replace(jobs[0].options, cluster=None, progress=False)
    shares = [(job.payloads, job.frames, job.idle) for job in jobs]
    shared = (jobs[0].config, plain, dict(content), top)
    return work.run(
        cluster, _run_share, shares, shared=shared, done=lambda index, raw: jobs[index].tick(jobs[index].beats_out)
    )


def _run_share(
    config: Config,
    options: Options,
    content: Mapping[str, bytes],
    top: str,
    share: tuple[Sequence[np.ndarray], int, int],
) -> Raw:
    """Return the `Raw` result of one share of the frames, simulated in a cluster's worker."""
    payloads, frames, idle = share
    job = SimulationJob(config=config, payloads=payloads, frames=frames, options=options, idle=idle)
    return simulator(options.simulator).run(job, content, top)


class _Bar:
    """Progress reporter of parallel simulations: names of steps, then the total number of their output beats."""

    def __init__(self, total: int, name: str) -> None:
        self._total, self._name = total, name
        self._tell = listener()
        self._done: dict[int, int] = {}
        self._lock = Lock()

    def say(self, step: str) -> None:
        """Report the name of the current step, such as compilation."""
        self._tell(Step(f"{self._name}: {step}"))

    def update(self, job_index: int, beats: int) -> None:
        """Report the total of output beats after one simulation has reached ``beats``."""
        with self._lock:
            self._done[job_index] = beats
            done = min(sum(self._done.values()), self._total)
            self._tell(Step(f"{self._name}: simulating", done, self._total, "beat"))


def run_groups(configs: Sequence[Config], frames: Frames, options: Options = _DEFAULTS) -> Run:
    """Return a `Run`: one result of simulating several fusion groups' accelerators, which run one after the other.

    Each frame passes all groups before the next frame begins. A group begins when the previous group has written its
    last byte. The cycles of the groups thus add up, with the memory's latencies. A single group receives its frames
    back to back, as in `run`.

    Parameters
    ----------
    configs : sequence of AcceleratorConfig
        Configuration of each group. A group reads the output map of the previous group.
    frames : ndarray, or sequence of ndarray
        Integers ``(n, C, H, W)`` of the first group's input type. For several inputs, one array of ``n`` frames each.
    options : Options
        Options of the simulation. Several groups are always simulated with ``one_by_one``, and the waves of group 1 go
        to ``NAME-1.vcd``, and so on.

    Returns
    -------
    Run
        Result of all groups. ``group_runs`` has the results of the groups, each with its own count of cycles. Taps and
        busy cycles are numbered through the layers of all groups.

    Raises
    ------
    InputError
        If frames or options don't fit, or a group can't read the output map of the previous group.
    ToolError
        If a simulator or compiler is missing or fails.
    CheckError
        If a design got stuck or broke the rules of a stream.
    """
    if not configs:
        raise InputError("configs must have at least one accelerator, not none")
    if len(configs) == 1:
        return run(configs[0], frames, options)
    if any(len(input_ports(config)) > 1 or len(output_ports(config)) > 1 for config in configs):
        raise InputError("groups that run one after the other must have one input and one output each")
    waves.chosen([stream for config in configs for stream in waves.streams(config)], options.wave_layers)
    runs: list[Run] = []
    for position, config in enumerate(configs, 1):
        path = options.wave_file and options.wave_file.with_stem(f"{options.wave_file.stem}-{position}")
        runs.append(run(config, frames, replace(_group_options(options, config, path), one_by_one=True)))
        frames = runs[-1].outputs
    # A config can be of another component with an accelerator's ports. Most of these have no start-up cycles.
    return _combined(runs, [getattr(config, "start_up", 0) for config in configs])


def _group_options(options: Options, config: Config, wave_file: Path | None) -> Options:
    """Return the `Options` of one group's simulation; without waves if ``wave_layers`` names none of its layers."""
    if options.wave_layers is None:
        return replace(options, waves=wave_file)
    own = {stream.layer for stream in waves.streams(config)}
    layers = tuple(name for name in options.wave_layers if name in own)
    if not layers:
        return replace(options, waves=None, wave_frames=None, wave_layers=None)
    return replace(options, waves=wave_file, wave_layers=layers)


def _combined(runs: Sequence[Run], start_up: Sequence[int]) -> Run:
    """Return a `Run`: one result from the results of fusion groups that compute each frame one after the other.

    ``start_up`` has the number of cycles after reset that pass before each group can begin. A later group's start-up
    cycles have passed when its turn comes, so only the first group's start-up cycles delay the frames.
    """
    ends = np.array([run.written_ends for run in runs])
    waited = np.array([[min(run.first_input, cycles)] for run, cycles in zip(runs, start_up, strict=True)])
    begins = np.hstack([waited, ends[:, :-1] + 1])
    # Cycle when the last group writes the last byte of each frame.
    lasts = begins[0, 0] + np.cumsum((ends - begins + 1).sum(axis=0)) - 1
    delays = np.array(runs[-1].written_ends) - np.array(runs[-1].frame_ends)
    last, layers = runs[-1], np.cumsum([0, *(len(run.taps) for run in runs)]).tolist()
    return replace(
        last,
        frame_ends=tuple((lasts - delays).tolist()),
        first_input=runs[0].first_input,
        written_ends=tuple(lasts.tolist()),
        cycles=sum(run.cycles for run in runs),
        read_bytes=sum(run.read_bytes for run in runs),
        written_bytes=sum(run.written_bytes for run in runs),
        wall_s=sum(run.wall_s for run in runs),
        taps={
            first + index: pixels
            for first, run in zip(layers, runs, strict=False)
            for index, pixels in run.taps.items()
        },
        busy=np.vstack([run.busy for run in runs]),
        steps=tuple(count for run in runs for count in run.steps),
        group_runs=tuple(runs),
    )
