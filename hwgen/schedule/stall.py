"""Whether a graph of layers can stall for ever, because a FIFO is too shallow for what its reader has to wait for.

A layer whose output goes two ways starts nothing while one of its FIFOs is full; if the layer that reads that FIFO
waits for the other way, which needs more beats first, nothing moves any more. Then events wait for each other in a
circle, and the schedule has no solution.
"""

from __future__ import annotations

from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.schedule.solve import Schedule

#: Frames that are looked at. No output needs anything of a later frame, so what gets through one frame gets through
#: all; the others are there for the rows and beats of frames that follow each other in the same buffers.
FRAMES = 3


def check_stall(config: AcceleratorConfig) -> None:
    """Refuse FIFOs with which a graph of layers stalls for ever. Chains never do.

    Raises
    ------
    PlanError
        Naming a FIFO that is full while its reader waits.
    """
    if not config.is_chain:
        Schedule(config, FRAMES).solve()
