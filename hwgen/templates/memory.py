"""Block RAM of weight memories, for arrays of unroll factors at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from hwgen.gateware.lookup import MEMORIES


def weight_block_rams(products: Any, lane_bits: Any, chain: int, depth: Any) -> Any:
    """Block RAM of a convolution's weight memories, one for each position in its chains; arrays of choices at once.

    Parameters
    ----------
    products : int or array
        Of one output channel in a step, ``Tk * Tn``.
    lane_bits : int or array
        Weights of all output channels for one product, ``Tm * weight bits``.
    chain : int
        Slices in a chain at most.
    depth : int or array
        Words: steps of one window.
    """
    chains = -(-products // chain)
    positions = -(-products // chains)
    first = products - (positions - 1) * chains
    return block_rams(lane_bits * first, depth) + (positions - 1) * block_rams(lane_bits * chains, depth)


def block_rams(width: Any, depth: Any) -> Any:
    """Return `hwgen.devices.Memories.block_rams` of many memories: arrays of widths, depths or both."""
    takes = [
        share * -(-width // block_width) * -(-depth // block_depth)
        for share, block_width, block_depth in MEMORIES.shapes
    ]
    return np.where(depth <= MEMORIES.lut_depth, 0.0, np.minimum.reduce(takes))
