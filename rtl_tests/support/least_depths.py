"""Least FIFO depths of a network that branches, by trying."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import stall_referee
from accelerators import Case
from hypothesis import strategies as st

from hwgen.errors import PlanError
from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.schedule.solve import Schedule, enough_frames
from hwgen.schedule.stall import check_stall

#: Times as many frames as sizing looks at, in which a FIFO that is too shallow is seen: until then its layer may
#: live on the lead that its outputs have.
LATER = 64


def loses(config: AcceleratorConfig, depths: list[int], frames: int) -> bool:
    """Tell whether the latency or an interval of some frame is greater with these depths than with the planned ones."""
    sized, less = Schedule(config, frames), Schedule(config, frames, depths=depths)
    try:
        sized.solve()
        less.solve()
    except PlanError:
        return True  # it stalls for ever
    later = less.frame_ends[0] > sized.frame_ends[0]
    return bool(later or (np.diff(less.frame_ends)[1:] > np.diff(sized.frame_ends)[1:]).any())


def least_depths(case: Case) -> list[str]:
    """Return the FIFOs of a case that are too deep: with one beat less, neither latency nor interval grows."""
    config = case.config
    frames = enough_frames(config, Schedule(config, 3).cycles)
    found = []
    for number, (link, depth) in enumerate(zip(config.links, config.fifo_depths, strict=True)):
        if depth <= max(2, *config.layers[link.source].fold_beats):
            continue
        depths = config.fifo_depths
        depths[number] = depth - 1
        if not loses(config, depths, frames) and not loses(config, depths, LATER * frames):
            found.append(f"{config.layers[link.source].name}, {link.output}: {depth - 1} would do")
    return found


def check_shallower(config, data):
    """Depths as planned don't stall; any that are drawn below them do where the referee says so."""
    check_stall(config)
    layers = []
    for layer in config.layers:
        least = max(layer.fold_beats)
        depths = [data.draw(st.one_of(st.just(most), st.integers(least, most))) for most in layer.fifo_depths]
        layers.append(replace(layer, fifo_depths=tuple(depths)))
    less = replace(config, layers=tuple(layers))
    if stall_referee.stalls(less):
        with pytest.raises(PlanError, match="layers deadlock"):
            check_stall(less)
    else:
        check_stall(less)
