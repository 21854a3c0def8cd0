"""Options of ``hwgen simulate --waves`` that choose the frames and layers to record."""

from __future__ import annotations

import argparse
import re
from typing import Any

from hwgen import simulators
from hwgen.errors import InputError


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--wave-frames`` and ``--wave-layers`` to the parser of ``hwgen simulate``."""
    parser.add_argument(
        "--wave-frames",
        type=_frames,
        metavar="A:B",
        help="with --waves: frames A to B - 1 alone, counted from 0 (verilator)",
    )
    parser.add_argument(
        "--wave-layers",
        metavar="NAME,..",
        help="with --waves: these layers alone, as the plan calls them (verilator)",
    )


def _frames(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,12}):(\d{1,12})", text)
    if not match or int(match[1]) >= int(match[2]):
        raise argparse.ArgumentTypeError(f"frames must be A:B, such as 0:8, not {text!r}")
    return int(match[1]), int(match[2])


def choice(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the frames and layers to record, as keyword arguments of ``Design.simulate``."""
    layers = arguments.wave_layers
    return {"wave_frames": arguments.wave_frames, "wave_layers": None if layers is None else layers.split(",")}


def check(arguments: argparse.Namespace) -> None:
    """Refuse ``--wave-frames`` and ``--wave-layers`` if waveforms can't be restricted to some frames and layers.

    Raises
    ------
    InputError
        If no waveforms are recorded, they are of an engine, or the simulator records everything.
    """
    choices = [name for name in ("frames", "layers") if getattr(arguments, f"wave_{name}") is not None]
    if not choices:
        return
    names = " and ".join(f"--wave-{name}" for name in choices)
    if arguments.waves is None:
        raise InputError(f"{names} choose of waves: give --waves, too")
    if arguments.engine is not None:
        raise InputError(f"waves of an engine are of one frame and the whole engine: leave out {names}")
    if not simulators.entry(arguments.simulator).selects_waves:
        able = simulators.names(lambda simulator: simulator.selects_waves)
        raise InputError(f"{names} choose of waves of {able}, not of {arguments.simulator}: leave them out")
