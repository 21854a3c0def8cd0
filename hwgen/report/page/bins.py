"""Encoding of the timeline in ``report.html``: the share of each bin of cycles that is spent in a state."""

from __future__ import annotations

import base64

import numpy as np

__all__ = ["shares"]


def shares(cycles: np.ndarray, edges: np.ndarray) -> str:
    """Return the share of each bin's cycles spent in one state, as a byte per bin (255 for all), in base64.

    Parameters
    ----------
    cycles : ndarray
        Cycles in the state, per bin.
    edges : ndarray
        First cycle of each bin, then the end of the last bin.
    """
    return base64.b64encode(np.rint(cycles * 255 / np.diff(edges)).astype(np.uint8).tobytes()).decode()
