"""Running an accelerator in Verilator, Icarus or Amaranth's own simulator: same beats, same cycles, same checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Literal

import numpy as np
from tqdm import tqdm

from hwgen import processes
from hwgen.emit.verilog import Config, Factory, accelerator, files, identifier
from hwgen.errors import InputError
from hwgen.progress import Lines, on_terminal
from hwgen.simulate import stimuli
from hwgen.simulate.groups import run_groups
from hwgen.simulate.memory import Memory
from hwgen.simulate.result import Job, Raw, Run, conclude, join
from hwgen.simulate.stimuli import Stalls

__all__ = ["SIMULATORS", "Memory", "Run", "Simulator", "run", "run_groups"]

Simulator = Literal["verilator", "icarus", "amaranth"]
SIMULATORS: tuple[Simulator, ...] = ("verilator", "icarus", "amaranth")

#: Frames that a simulation side by side with others has at least: fewer are not worth a start from reset.
LEAST_SHARE = 16

_WAVES = {"verilator": (".vcd", ".fst"), "icarus": (".vcd", ".fst"), "amaranth": (".vcd",)}


def run(
    config: Config,
    frames: np.ndarray,
    *,
    simulator: Simulator = "verilator",
    waves: str | Path | None = None,
    progress: bool = False,
    stalls: tuple[float, float] | None = None,
    seed: int = 0,
    taps: bool = False,
    idle: int | None = None,
    reset_at: int | None = None,
    component: Factory | None = None,
    jobs: int = 1,
    memory: Memory | None = None,
    one_by_one: bool = False,
) -> Run:
    """Send frames through an accelerator, back to back, and gather what comes out.

    Parameters
    ----------
    config : AcceleratorConfig
    frames : ndarray
        ``(n, C, H, W)`` integers of the input's type.
    simulator : str
        ``verilator`` and ``icarus`` run the Verilog that ``emit`` writes, ``amaranth`` the component itself.
    waves : path, optional
        Write waveforms there: ``.vcd``, or ``.fst`` (not with ``amaranth``).
    progress : bool
        Show a progress bar on stderr.
    stalls : tuple of float, optional
        Probabilities that source and sink stall in a cycle; neither ever does if not given.
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
    jobs : int
        Simulations side by side, each from reset with its share of the frames; of Verilator only, without waves,
        stalls, taps or reset, and with at least 16 frames each. Cycles are then those of the first share.
    memory : Memory, optional
        Where the maps come from and go to; one that never stalls if not given.
    one_by_one : bool
        Read a frame only when the one before is written.

    Raises
    ------
    InputError
        If frames or options don't fit.
    ToolError
        If a simulator or compiler is missing or fails.
    CheckError
        If the design got stuck or broke the rules of a stream.
    """
    if simulator not in SIMULATORS:
        raise InputError(f"simulator must be one of {', '.join(SIMULATORS)}, not {simulator!r}")
    if waves is not None:
        waves = Path(waves).absolute()
        if waves.suffix not in _WAVES[simulator]:
            raise InputError(f"waves of {simulator} must end in {' or '.join(_WAVES[simulator])}, not {waves.name!r}")
        if not waves.parent.is_dir():
            raise InputError(f"waves can't be written: there is no folder {waves.parent}")
    stall = Stalls.make(stalls, seed)
    stimuli.dtype(config.output)
    memory = memory or Memory()
    bar = _Bar(len(frames) * config.output_order.beats(config.output), config.name) if progress else None
    plain = simulator == "verilator" and not (waves or stalls or taps or reset_at)
    shares = np.array_split(frames, max(1, min(jobs, len(frames) // LEAST_SHARE)) if plain else 1)
    parts = [
        Job(
            config=config,
            payloads=stimuli.pack(share, config.input, config.input_order),
            frames=len(share),
            stalls=stall,
            idle=patience(config, stalls, memory) if idle is None else idle,
            reset_at=reset_at,
            memory=memory,
            one_by_one=one_by_one,
            taps=tuple(zip(config.taps, config.tap_orders, strict=True)) if taps else (),  # type: ignore[attr-defined]
            waves=waves,
            tick=partial(bar.update, number) if bar else lambda beats: None,
            say=bar.say if bar else lambda step: None,
        )
        for number, share in enumerate(shares)
    ]
    try:
        if simulator == "amaranth":
            from hwgen.simulate import amaranth_sim

            raws = [amaranth_sim.run(job, accelerator(config, component=component, taps=taps)) for job in parts]
        else:
            if simulator == "verilator":
                from hwgen.simulate import verilator as engine
            else:
                from hwgen.simulate import icarus as engine
            engine.check_tools()  # before the Verilog is written, which may take longer than a message
            parts[0].say("writing the Verilog")
            content, top = files(config, component=component, taps=taps), identifier(config.name)
            if len(parts) > 1:
                from hwgen.simulate import verilator

                verilator.build(parts[0], content, top)  # once, not by all of them at the same time
            raws = _side_by_side([partial(engine.run, job, content, top) for job in parts])
    finally:
        if bar:
            bar.close()
    return join([conclude(job, raw, simulator) for job, raw in zip(parts, raws, strict=True)])


def _side_by_side(runs: Sequence[Callable[[], Raw]]) -> list[Raw]:
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


def patience(config: Config, stalls: tuple[float, float] | None = None, memory: Memory | None = None) -> int:
    """Cycles without a transfer that no working design needs: those of a frame in all layers, one after the other, and
    those in which the memory reads the next beat and empties its queue."""
    layers = getattr(config, "layers", ())
    ends = ((config.input, config.input_order), (config.output, config.output_order))
    cycles = sum(layer.cycles for layer in layers) or 2 * sum(order.beats(beat) for beat, order in ends)
    if memory is not None and memory.limits:
        largest = max(int(stimuli.beat_bytes(*end).max()) for end in ends)
        cycles += memory.latency + (memory.queue + 1) * memory.beat_cycles(largest)
    slow = 1.0
    for probability in stalls or ():
        slow /= 1 - probability
    return round((2 * cycles + 2000) * slow)


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
