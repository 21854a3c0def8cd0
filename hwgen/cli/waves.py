"""Which frames and layers ``hwgen simulate --waves`` records."""

from __future__ import annotations

import argparse
import re
from typing import Any

from hwgen import simulators
from hwgen.errors import InputError


def add_options(parser: argparse.ArgumentParser) -> None:
    """Those of ``hwgen simulate`` that choose of waves."""
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
    found = re.fullmatch(r"(\d{1,12}):(\d{1,12})", text)
    if not found or int(found[1]) >= int(found[2]):
        raise argparse.ArgumentTypeError(f"frames must be A:B, such as 0:8, not {text!r}")
    return int(found[1]), int(found[2])


def choice(arguments: argparse.Namespace) -> dict[str, Any]:
    """What was chosen, as ``Design.simulate`` takes it."""
    layers = arguments.wave_layers
    return {"wave_frames": arguments.wave_frames, "wave_layers": None if layers is None else layers.split(",")}


def check(arguments: argparse.Namespace) -> None:
    """Refuse a choice where there is nothing to choose from.

    Raises
    ------
    InputError
    """
    given = [name for name in ("frames", "layers") if getattr(arguments, f"wave_{name}") is not None]
    if not given:
        return
    names = " and ".join(f"--wave-{name}" for name in given)
    if arguments.waves is None:
        raise InputError(f"{names} choose of waves: give --waves, too")
    if arguments.engine is not None:
        raise InputError(f"waves of an engine are of one frame and the whole engine: leave out {names}")
    if not simulators.entry(arguments.simulator).selects_waves:
        able = simulators.names(lambda each: each.selects_waves)
        raise InputError(f"{names} choose of waves of {able}, not of {arguments.simulator}: leave them out")
