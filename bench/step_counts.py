"""Counts of windows and multiplications that an accelerator's layers computed in a run, from their hardware's steps."""

from __future__ import annotations

from hwgen.errors import InputError
from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.layer import LayerConfig
from hwgen.simulate.result import Run

__all__ = ["multiplications", "windows"]


def windows(config: AcceleratorConfig, run: Run) -> tuple[int, ...]:
    """Return the number of windows that each layer computed in a run with taps. Recomputed windows count again.

    Raises
    ------
    InputError
        If the run was without taps.
    """
    if len(run.steps) != len(config.layers):
        raise InputError(f"{config.name}: steps of {len(config.layers)} layers are needed (taps), not {len(run.steps)}")
    return tuple(_windows(layer, steps) for layer, steps in zip(config.layers, run.steps, strict=True))


def multiplications(config: AcceleratorConfig, run: Run) -> tuple[int, ...]:
    """Return the number of products that each layer computed in a run with taps, with padding too. Pools have none.

    Raises
    ------
    InputError
        If the run was without taps.
    """
    counts = windows(config, run)
    products = (getattr(layer.compute, "window_products", 0) for layer in config.layers)
    return tuple(count * each for count, each in zip(counts, products, strict=True))


def _windows(layer: LayerConfig, steps: int) -> int:
    """Return the number of windows in ``steps`` steps: ``Tp`` windows in ``window_steps``, except past a row's end."""
    window = layer.window
    row_steps = -(-window.output_width // window.pixels)
    return steps // layer.window_steps * window.output_width // row_steps
