"""Numbers of block RAMs of weight memories, computed for whole arrays of unroll factors."""

from __future__ import annotations

from typing import Any

import numpy as np

from hwgen.gateware.lookup import MEMORIES


def weight_block_rams(products: Any, lane_bits: Any, chain: Any, depth: Any) -> Any:
    """Return the number of 36-kbit block RAMs of a convolution's weight memories, one memory per position in a chain.

    Parameters
    ----------
    products : int or array
        Number of products of one output channel per step, ``Tk * Tn``.
    lane_bits : int or array
        Stored bits of the weights of all output channels for one product.
    chain : int or array
        Maximum number of DSP slices in a chain.
    depth : int or array
        Words of each memory: the steps of one window.
    """
    chains = -(-products // chain)
    positions = -(-products // chains)
    first = products - (positions - 1) * chains
    return block_rams(lane_bits * first, depth) + (positions - 1) * block_rams(lane_bits * chains, depth)


def block_rams(width: Any, depth: Any) -> Any:
    """Return the 36-kbit block RAMs of a memory, or 0 if its depth suits LUTs; width and depth can be arrays."""
    counts = [
        share * -(-width // block_width) * -(-depth // block_depth)
        for share, block_width, block_depth in MEMORIES.shapes
    ]
    return np.where(depth <= MEMORIES.lut_depth, 0.0, np.minimum.reduce(counts))
