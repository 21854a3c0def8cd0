"""One accelerator in one simulator, or in several side by side, each with its share of the frames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from threading import Lock
from typing import TypeVar

import numpy as np
from tqdm import tqdm

from hwgen import processes
from hwgen.emit import stimuli
from hwgen.emit.testbench import patience
from hwgen.emit.verilog import Config, accelerator, files, identifier, input_ports, output_ports
from hwgen.errors import InputError
from hwgen.network.golden import Frames, by_input
from hwgen.progress import Lines, on_terminal
from hwgen.simulate.contents import apart
from hwgen.simulate.job import Job, Options
from hwgen.simulate.result import Raw, Run, conclude, join

_DEFAULTS = Options()
T = TypeVar("T")


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
    options.draws(len(ports))  # probabilities for other outputs are refused at once
    bar = _Bar(count * sum(port.beats for port in ports), config.name) if options.progress else None
    try:
        shares = zip(*(np.array_split(values, options.shares(count)) for values in given), strict=True)
        jobs = [_job(config, share, options, number, bar) for number, share in enumerate(shares)]
        raws = _raws(config, options, jobs)
    finally:
        if bar:
            bar.close()
    return join([conclude(job, raw, options.simulator) for job, raw in zip(jobs, raws, strict=True)])


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


def _job(config: Config, frames: Sequence[np.ndarray], options: Options, number: int, bar: _Bar | None) -> Job:
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
        tick=partial(bar.update, number) if bar else lambda beats: None,
        say=bar.say if bar else lambda step: None,
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


def _raws(config: Config, options: Options, jobs: Sequence[Job]) -> list[Raw]:
    """What the simulator saw in each of the jobs."""
    component, taps = options.component, options.taps
    if options.simulator == "amaranth":
        from hwgen.simulate import amaranth_sim

        return [amaranth_sim.run(job, accelerator(config, component=component, taps=taps)) for job in jobs]
    from hwgen.simulate import icarus, verilator

    engine = verilator if options.simulator == "verilator" else icarus
    engine.check_tools()  # before the Verilog is written, which may take longer than a message
    content, top = files(config, component=component, taps=taps, say=jobs[0].say), identifier(config.name)
    beside = options.beside
    content |= {name: text for name, text in beside.items() if not name.endswith(".v")}
    # One file, as simulators are compiled of one.
    content[f"{top}.v"] += b"".join(b"\n" + text for name, text in beside.items() if name.endswith(".v"))
    if engine is verilator:
        content = apart(content, top)
    if len(jobs) > 1:
        verilator.build(jobs[0], content, top)  # once, not by all of them at the same time
    return side_by_side([partial(engine.run, job, content, top) for job in jobs])


def side_by_side(runs: Sequence[Callable[[], T]]) -> list[T]:
    """Each in a thread of its own; when this one is interrupted, the programs they wait for end."""
    with ThreadPoolExecutor(len(runs)) as pool:
        futures = [pool.submit(run) for run in runs]
        try:
            return [future.result() for future in futures]
        except Exception:
            raise
        except BaseException:
            while wait(futures, timeout=0.05).not_done:  # one may be about to start
                processes.end()
            raise


class _Bar:
    """A progress bar over output beats, shown when the run takes longer than a second; before it, what is done.

    Where stderr is no terminal, lines now and then instead.
    """

    def __init__(self, total: int, name: str) -> None:
        self._total, self._name = total, name
        self._lines = Lines()
        self._bar: tqdm | None = None
        self._done: dict[int, int] = {}
        self._lock = Lock()

    def say(self, step: str) -> None:
        self._lines.say(f"{self._name}: {step}")

    def update(self, part: int, beats: int) -> None:
        with self._lock:
            self._done[part] = beats
            done = min(sum(self._done.values()), self._total)
            if not on_terminal():
                self._lines.say(f"{self._name}: {done:,} of {self._total:,} beats ({done / self._total:.0%})")
                return
            if self._bar is None:  # only now: what came before would spoil the rate
                self._bar = tqdm(
                    total=self._total,
                    desc=self._name,
                    unit="beat",
                    unit_scale=True,
                    delay=1,
                    leave=False,
                    dynamic_ncols=True,
                )
            self._bar.update(done - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
