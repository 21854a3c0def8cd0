"""Check whether a graph of layers can deadlock because a FIFO is too shallow for its reader.

A layer with two outputs starts nothing while one of its FIFOs is full. The reader of that FIFO can wait for the other
branch, which needs more beats first. Then nothing moves any more: events wait for each other in a circle, and the
schedule has no solution.
"""

from __future__ import annotations

from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.schedule.solve import Schedule

#: Number of frames that the check schedules. No output needs a beat of a later frame, so a graph that finishes one
#: frame finishes all. The other frames cover rows and beats of consecutive frames in the same buffers.
FRAMES = 3


def check_stall(config: AcceleratorConfig) -> None:
    """Refuse FIFO depths with which a graph of layers deadlocks. A chain never deadlocks.

    Raises
    ------
    PlanError
        If the graph deadlocks. The message names a FIFO that is full while its reader waits.
    """
    if not config.is_chain:
        Schedule(config, FRAMES).solve()
