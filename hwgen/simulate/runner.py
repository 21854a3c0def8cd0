"""One accelerator in one simulator, or in several side by side, each with its share of the frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from threading import Lock

import numpy as np

from hwgen import work
from hwgen.emit import stimuli
from hwgen.emit.testbench import patience
from hwgen.emit.verilog import Config, files, identifier, input_ports, output_ports
from hwgen.errors import InputError
from hwgen.network.golden import Frames, by_input
from hwgen.progress import Step, followed, listener
from hwgen.simulate import waves
from hwgen.simulate.job import Job, Options
from hwgen.simulate.result import Raw, Run, conclude, join
from hwgen.simulate.simulator import Simulator, simulator
from hwgen.simulators import entry

_DEFAULTS = Options()


def run(config: Config, frames: Frames, options: Options = _DEFAULTS) -> Run:
    """Send frames through an accelerator, back to back, and gather what comes out.

    Parameters
    ----------
    config : AcceleratorConfig
    frames : ndarray, or sequence of ndarray
        ``(n, C, H, W)`` integers of the input's type; of several inputs as many of each.
    options : Options

    Raises
    ------
    InputError
        If frames or options don't fit.
    ToolError
        If a simulator or compiler is missing or fails.
    CheckError
        If the design got stuck or broke the rules of a stream.
    """
    ports, given = output_ports(config), by_input(frames)
    count = _count(config, given)
    for port in ports:
        stimuli.dtype(port.beat)
    _check_waves(config, options, count)
    options.draws(len(ports))  # probabilities for other outputs are refused at once
    with followed(options.progress), ExitStack() as stack:
        cluster = None if options.cluster is None else stack.enter_context(work.pool(options.cluster))
        parts = options.shares(count, cluster.count * work.SHARES if cluster else 1)
        bar = _Bar(count * sum(port.beats for port in ports), config.name)
        shares = zip(*(np.array_split(values, parts) for values in given), strict=True)
        jobs = [_job(config, share, options, number, bar) for number, share in enumerate(shares)]
        raws = _raws(config, options, jobs, cluster)
    return join([conclude(job, raw, options.simulator) for job, raw in zip(jobs, raws, strict=True)])


def _check_waves(config: Config, options: Options, frames: int) -> None:
    """Refuse waves of frames and layers that there are not.

    Raises
    ------
    InputError
    """
    waves.chosen(waves.streams(config), options.wave_layers)
    if options.wave_frames is not None and options.wave_frames[0] >= frames:
        raise InputError(f"waves can't be of frame {options.wave_frames[0]}: frames are 0 to {frames - 1}")


def _count(config: Config, frames: Sequence[np.ndarray]) -> int:
    """How many frames there are.

    Raises
    ------
    InputError
        If they are not of each input, and as many of each.
    """
    ports, counts = input_ports(config), {len(values) for values in frames}
    if len(frames) != len(ports) or len(counts) != 1:
        names = ", ".join(port.name for port in ports)
        found = " and ".join(str(len(values)) for values in frames)
        raise InputError(f"frames must be as many of each of {len(ports)} inputs ({names}), not {found or 'none'}")
    return counts.pop()


def _job(config: Config, frames: Sequence[np.ndarray], options: Options, number: int, bar: _Bar) -> Job:
    return Job(
        config=config,
        payloads=[
            stimuli.pack(values, port.beat, port.order)
            for values, port in zip(frames, input_ports(config), strict=True)
        ],
        frames=len(frames[0]),
        options=options,
        idle=_idle(config, options) if options.idle is None else options.idle,
        taps=tuple(zip(config.taps, config.tap_orders, strict=True)) if options.taps else (),  # type: ignore[attr-defined]
        tick=partial(bar.update, number),
        say=bar.say,
    )


def _idle(config: Config, options: Options) -> int:
    """Cycles without a transfer that no working design needs, nor a memory that reads a beat and empties its queue."""
    memory, waits = options.memory, 0
    if memory.limits:
        sources = input_ports(config)
        ends = (*sources, *output_ports(config))
        largest = max(int(stimuli.beat_bytes(port.beat, port.order).max()) for port in ends)
        waits = memory.latency + (memory.queue + 1) * memory.beat_cycles(largest, len(sources) + 1)
    return patience(config, options.stalls, waits)


def _raws(config: Config, options: Options, jobs: Sequence[Job], cluster: work.Pool | None) -> list[Raw]:
    """What the simulator saw in each of the jobs."""
    used = simulator(options.simulator)
    if not entry(options.simulator).reads_verilog:
        return [used.run(job, {}, "") for job in jobs]
    elsewhere = cluster if len(jobs) > 1 else None
    if elsewhere is None:
        used.check_tools()  # before the Verilog is written, which may take longer than a message
    with work.pool(count=1, programs=True) if elsewhere is None else nullcontext(elsewhere) as pool:
        ready = [pool.submit(used.prepare, options.wave_file) for _ in range(pool.count)]  # on each of the workers
        content, top = _sources(config, options, used, jobs[0].say), identifier(config.name)
        for future in ready:
            future.result()
    if options.wave_file and (watched := _watched(config, options)):  # after all tools are known to be there
        waves.write_save_file(options.wave_file, top, watched, options.wave_layers)
    if elsewhere is not None:
        return _elsewhere(elsewhere, jobs, content, top)
    if len(jobs) > 1:
        used.build(jobs[0], content, top)  # once, not by all of them at the same time
    with work.pool(count=len(jobs), programs=True) as pool:
        return work.run(pool, partial(_simulated, used, content, top), jobs)


def _sources(config: Config, options: Options, used: Simulator, say: Callable[[str], None]) -> Mapping[str, bytes]:
    """Return the files that a simulator reads: the design's, those beside it, and what makes its waves readable."""
    top, beside = identifier(config.name), options.beside
    watched = _watched(config, options)
    content = files(config, component=options.component, taps=options.taps or bool(watched), say=say)
    content |= {name: text for name, text in beside.items() if not name.endswith(".v")}
    # One file, as simulators are compiled of one.
    content[f"{top}.v"] += b"".join(b"\n" + text for name, text in beside.items() if name.endswith(".v"))
    if watched:
        content = waves.decoded(content, top, watched)
    return used.sources(content, top)


def _watched(config: Config, options: Options) -> Sequence[waves.Watched]:
    """Return the streams that waves show decoded; none without waves, or for other Verilog than the design's."""
    plain = options.component is None and not options.beside
    return waves.streams(config) if entry(options.simulator).selects_waves and options.wave_file and plain else ()


def _simulated(used: Simulator, content: Mapping[str, bytes], top: str, job: Job) -> Raw:
    return used.run(job, content, top)


def _elsewhere(cluster: work.Pool, jobs: Sequence[Job], content: Mapping[str, bytes], top: str) -> list[Raw]:
    """The same on a cluster, whose workers compile for themselves; how far they are is told share by share."""
    jobs[0].say("compiling and simulating on the cluster")
    plain = replace(jobs[0].options, cluster=None, progress=False)
    shares = [(job.payloads, job.frames, job.idle) for job in jobs]
    shared = (jobs[0].config, plain, dict(content), top)
    return work.run(
        cluster, _share, shares, shared=shared, done=lambda number, raw: jobs[number].tick(jobs[number].beats_out)
    )


def _share(
    config: Config,
    options: Options,
    content: Mapping[str, bytes],
    top: str,
    share: tuple[Sequence[np.ndarray], int, int],
) -> Raw:
    """One of the jobs, in a worker of a cluster."""
    payloads, frames, idle = share
    job = Job(config=config, payloads=payloads, frames=frames, options=options, idle=idle)
    return simulator(options.simulator).run(job, content, top)


class _Bar:
    """Tells how many output beats have come, of all simulations side by side; before that, what is being done."""

    def __init__(self, total: int, name: str) -> None:
        self._total, self._name = total, name
        self._tell = listener()
        self._done: dict[int, int] = {}
        self._lock = Lock()

    def say(self, step: str) -> None:
        self._tell(Step(f"{self._name}: {step}"))

    def update(self, part: int, beats: int) -> None:
        with self._lock:
            self._done[part] = beats
            done = min(sum(self._done.values()), self._total)
            self._tell(Step(f"{self._name}: simulating", done, self._total, "beat"))
