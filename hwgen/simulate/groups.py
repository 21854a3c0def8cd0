"""Simulation of a plan's groups, accelerators that run one after the other, with maps between in off-chip memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from hwgen.errors import InputError
from hwgen.gateware.circuit_ports import Config, input_ports, output_ports
from hwgen.network.golden import Frames
from hwgen.simulate.job import Options
from hwgen.simulate.result import Run
from hwgen.simulate.runner import run
from hwgen.simulate.waves import chosen, streams

_DEFAULTS = Options()


def run_groups(configs: Sequence[Config], frames: Frames, options: Options = _DEFAULTS) -> Run:
    """Simulate the accelerators of several groups, one after the other, and combine their results.

    Each frame passes all groups before the next frame begins. A group begins when the group before has written its last
    byte. So the cycles of the groups add up, with the memory's latencies. A single group receives its frames back to
    back, as in `run`.

    Parameters
    ----------
    configs : sequence of AcceleratorConfig
        Configuration of each group. A group reads the output map of the group before.
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
        If frames or options don't fit, or a group can't read the output map of the group before.
    ToolError
        If a simulator or compiler is missing or fails.
    CheckError
        If a design got stuck or broke the rules of a stream.
    """
    if not configs:
        raise InputError("configs must be at least one, not ()")
    if len(configs) == 1:
        return run(configs[0], frames, options)
    if any(len(input_ports(config)) > 1 or len(output_ports(config)) > 1 for config in configs):
        raise InputError("groups that run one after the other must have one input and one output each")
    chosen([stream for config in configs for stream in streams(config)], options.wave_layers)
    runs: list[Run] = []
    for position, config in enumerate(configs, 1):
        path = options.wave_file and options.wave_file.with_stem(f"{options.wave_file.stem}-{position}")
        runs.append(run(config, frames, replace(_group_options(options, config, path), one_by_one=True)))
        frames = runs[-1].outputs
    # A config can be of another component with an accelerator's ports. Most of these have no start-up cycles.
    return _combined(runs, [getattr(config, "start_up", 0) for config in configs])


def _group_options(options: Options, config: Config, waves: Path | None) -> Options:
    """Return the options of one group's simulation; without waves if ``wave_layers`` names none of its layers."""
    if options.wave_layers is None:
        return replace(options, waves=waves)
    own = {stream.layer for stream in streams(config)}
    layers = tuple(name for name in options.wave_layers if name in own)
    if not layers:
        return replace(options, waves=None, wave_frames=None, wave_layers=None)
    return replace(options, waves=waves, wave_layers=layers)


def _combined(runs: Sequence[Run], start_up: Sequence[int]) -> Run:
    """Combine the results of groups that compute each frame one after the other into one result.

    ``start_up`` has the number of cycles after reset in which each group can't begin. A later group's start-up cycles
    have passed when its turn comes, so only the first group's start-up cycles delay the frames.
    """
    ends = np.array([run.written_ends for run in runs])
    waited = np.array([[min(run.first_input, cycles)] for run, cycles in zip(runs, start_up, strict=True)])
    begins = np.hstack([waited, ends[:, :-1] + 1])
    # Cycle in which the last group writes the last byte of each frame.
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
