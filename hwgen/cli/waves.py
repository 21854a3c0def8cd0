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
        help="with --waves: record only frames A to B - 1, counted from 0 (verilator only)",
    )
    parser.add_argument(
        "--wave-layers",
        metavar="NAME,..",
        help="with --waves: record only these layers, named as in the plan (verilator only)",
    )


def _frames(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,12}):(\d{1,12})", text)
    if not match or int(match[1]) >= int(match[2]):
        raise argparse.ArgumentTypeError(f"frames must be A:B, such as 0:8, not {text!r}")
    return int(match[1]), int(match[2])


def choice(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return, as a dictionary, the frames and layers to record, as keyword arguments of ``Design.simulate``."""
    layers = arguments.wave_layers
    return {"wave_frames": arguments.wave_frames, "wave_layers": None if layers is None else layers.split(",")}


def check(arguments: argparse.Namespace) -> None:
    """Raise InputError for ``--wave-frames`` or ``--wave-layers`` if the simulator can't restrict waveforms.

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
        raise InputError(f"{names} selects what --waves records: give --waves as well")
    if arguments.engine is not None:
        raise InputError(f"waveforms of an engine cover one frame and the whole engine: leave out {names}")
    if not simulators.entry(arguments.simulator).selects_waves:
        able = simulators.names(lambda simulator: simulator.selects_waves)
        raise InputError(f"{names} needs --simulator {able}, not {arguments.simulator}: leave it out")
