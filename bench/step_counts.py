"""What an accelerator's layers did in a run, from the steps that were counted in their hardware."""

from __future__ import annotations

from hwgen.errors import InputError
from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.layer import LayerConfig
from hwgen.simulate.result import Run

__all__ = ["multiplications", "windows"]


def windows(config: AcceleratorConfig, run: Run) -> tuple[int, ...]:
    """Windows that each layer computed in a run with taps, those computed again counted again.

    Raises
    ------
    InputError
        If the run was without taps.
    """
    if len(run.steps) != len(config.layers):
        raise InputError(f"{config.name}: steps of {len(config.layers)} layers are needed (taps), not {len(run.steps)}")
    return tuple(_windows(layer, steps) for layer, steps in zip(config.layers, run.steps, strict=True))


def multiplications(config: AcceleratorConfig, run: Run) -> tuple[int, ...]:
    """Products of weights and activations that each layer computed in a run with taps, by padding too; pools have none.

    Raises
    ------
    InputError
        If the run was without taps.
    """
    counts = windows(config, run)
    return tuple(count * layer.compute.window_products for count, layer in zip(counts, config.layers, strict=True))


def _windows(layer: LayerConfig, steps: int) -> int:
    """``Tp`` windows in ``window_steps`` steps, but for those past the end of a row."""
    window = layer.window
    return steps // layer.window_steps * window.output_width // window.row_steps
