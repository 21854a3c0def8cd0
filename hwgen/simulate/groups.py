"""Groups of a plan one after the other, their maps in off-chip memory in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from hwgen.emit.verilog import Config, input_ports, output_ports
from hwgen.errors import InputError
from hwgen.network.golden import Frames
from hwgen.simulate.job import Options
from hwgen.simulate.result import Run
from hwgen.simulate.runner import run
from hwgen.simulate.waves import chosen, streams

__all__ = ["run_groups"]

_DEFAULTS = Options()


def run_groups(configs: Sequence[Config], frames: Frames, options: Options = _DEFAULTS) -> Run:
    """Send frames through groups in turn; each is an accelerator of its own, and a simulation of its own.

    A frame goes through all groups before the next one begins, and a group begins when the one before has written its
    last byte: cycles, latencies of the memory among them, add up. A single group takes its frames back to back, as
    ``run`` does.

    Parameters
    ----------
    configs : sequence of AcceleratorConfig
        Each takes the map that the one before leaves.
    frames : ndarray, or sequence of ndarray
        ``(n, C, H, W)`` integers of the first one's input type; of several inputs as many of each.
    options : Options
        Of several groups always ``one_by_one``. Waves of the first one go to ``NAME-1.vcd`` then, and so on.

    Returns
    -------
    Run
        Of all groups; ``parts`` are theirs, each on a time of its own. Taps and busy cycles are numbered through all
        layers.

    Raises
    ------
    InputError
        If frames or options don't fit, or a group does not take what the one before leaves.
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
    chosen([each for config in configs for each in streams(config)], options.wave_layers)
    parts: list[Run] = []
    for number, config in enumerate(configs, 1):
        path = options.wave_file and options.wave_file.with_stem(f"{options.wave_file.stem}-{number}")
        parts.append(run(config, frames, replace(_of_group(options, config, path), one_by_one=True)))
        frames = parts[-1].outputs
    # Anything with an accelerator's ports may stand in for one; most of these can begin at once.
    return _in_turn(parts, [getattr(config, "start_up", 0) for config in configs])


def _of_group(options: Options, config: Config, waves: Path | None) -> Options:
    """What is asked of one group: waves of those of its layers that were chosen, if there are any."""
    if options.wave_layers is None:
        return replace(options, waves=waves)
    own = {each.layer for each in streams(config)}
    layers = tuple(name for name in options.wave_layers if name in own)
    if not layers:
        return replace(options, waves=None, wave_frames=None, wave_layers=None)
    return replace(options, waves=waves, wave_layers=layers)


def _in_turn(parts: Sequence[Run], start_up: Sequence[int]) -> Run:
    """The result of groups that took turns, frame by frame.

    Hardware that could not begin for some cycles after its reset has had them behind it when its turn came; only what
    the first group's took comes before all frames.
    """
    ends = np.array([part.written_ends for part in parts])
    waited = np.array([[min(part.first_input, cycles)] for part, cycles in zip(parts, start_up, strict=True)])
    begins = np.hstack([waited, ends[:, :-1] + 1])
    # In which cycle the last group writes its last byte.
    lasts = begins[0, 0] + np.cumsum((ends - begins + 1).sum(axis=0)) - 1
    delays = np.array(parts[-1].written_ends) - np.array(parts[-1].frame_ends)
    last, layers = parts[-1], np.cumsum([0, *(len(part.taps) for part in parts)]).tolist()
    return replace(
        last,
        frame_ends=tuple((lasts - delays).tolist()),
        first_input=parts[0].first_input,
        written_ends=tuple(lasts.tolist()),
        cycles=sum(part.cycles for part in parts),
        read_bytes=sum(part.read_bytes for part in parts),
        written_bytes=sum(part.written_bytes for part in parts),
        wall_s=sum(part.wall_s for part in parts),
        taps={
            first + number: pixels
            for first, part in zip(layers, parts, strict=False)
            for number, pixels in part.taps.items()
        },
        busy=np.vstack([part.busy for part in parts]),
        steps=tuple(count for part in parts for count in part.steps),
        parts=tuple(parts),
    )
