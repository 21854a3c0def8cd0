"""Obligations ``progress``: where both ends are ready, a beat moves within a bound of cycles.

So no component holds a beat back for ever. The bound follows from the configuration.
"""

from __future__ import annotations

from hwgen.gateware.fifo import FifoConfig
from hwgen.gateware.regroup import RegroupConfig
from hwgen.prove.obligation import Obligation
from hwgen.prove.site import Site, bits_for
from hwgen.prove.streams.occupancy import counter_invariants, stored

__all__ = ["of_fifo", "of_regroup"]


def of_fifo(config: FifoConfig, site: Site) -> list[Obligation]:
    """Return the obligation of a FIFO: a beat that waits is offered at most its latency after it was written."""
    sees = stored(site)
    bound = config.latency - 1
    return [
        site.obligation(
            "progress",
            f"A FIFO that holds a beat offers one after at most {bound} cycles without.",
            methods=("induction", "pdr"),
            observer=(
                f"reg {bits_for(config.depth + 1)} waiting = 0;",
                "always @(posedge clk) waiting <= rst ? 0 : waiting + i__valid - (o__valid & o__ready);",
                f"reg {bits_for(bound + 1)} idle = 0;",
                "wire is_idle = (waiting != 0) & !o__valid;",
                f"always @(posedge clk) idle <= rst | !is_idle ? 0 : idle + (idle != {bound + 1});",
            ),
            sees=sees,
            assumes={"the writer has a credit for each beat": f"!i__valid | (waiting < {config.depth})"},
            invariants={
                "the counters' sum is the number of waiting beats": f"32'd0 + {' + '.join(sees)} == waiting",
                **counter_invariants(config, sees),
            },
            asserts={"a waiting beat is offered in time": f"!is_idle | (idle < {bound})"},
            cover="is_idle",
            free_memories=True,
        )
    ]


def of_regroup(config: RegroupConfig, site: Site) -> list[Obligation]:
    """Return the obligation of a width converter: it offers what it holds, and takes a beat if that is nothing.

    The channels that it holds are those that were taken and not sent, as ``tokens`` proves. A converter whose streams
    are always ready takes every beat; ``schedule`` says when it sends them.
    """
    if config.always_ready:
        return []
    return [
        site.obligation(
            "progress",
            "A converter that holds a whole output beat offers it, and one that holds none takes the beat that comes.",
            methods=("pdr",),
            sees={"held": "lanes_held"},
            asserts={
                "a whole output beat is offered": f"!(held >= {config.output.lanes}) | o__valid",
                "without one, a beat is taken": "o__valid | i__ready",
            },
            cover="i__valid & i__ready & o__valid & o__ready & !rst",
            free_memories=True,
        )
    ]
