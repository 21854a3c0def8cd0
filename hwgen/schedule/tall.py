"""Schedules of accelerators for tall feature maps, extrapolated from maps with fewer rows.

Rows inside a map wait for each other in the same way, whatever their index. In the steady state each row takes as many
cycles as the row before, so the cycles grow linearly with the rows. Three heights are scheduled exactly. If the cycles
grow by the same step from the first height to the second and from the second to the third, all greater heights follow
the same line. Otherwise there is no extrapolation.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.layer import LayerConfig

#: Approximate number of scheduled events, over all frames, of the tallest lower map that `shortened` returns.
TARGET_EVENTS = 1 << 23

#: Output rows of the last layer: difference between the three lower maps of `shortened`, and minimum of the lowest map.
STEP_ROWS, MIN_ROWS = 12, 48

#: Smallest height of each layer's input for the lowest map of `shortened`, as a multiple of the line buffer's rows.
MIN_BUFFERS = 4


def shortened(config: AcceleratorConfig, events: int) -> tuple[list[AcceleratorConfig], int] | None:
    """Return accelerators for three lower maps, and the height steps from the tallest to the whole map; or ``None``.

    Parameters
    ----------
    config : AcceleratorConfig
        Accelerator on the whole map.
    events : int
        Number of events of the whole map in all frames that are scheduled.

    Returns
    -------
    tuple or None
        ``None`` if a layer works in tiles, the layers are no chain, or the map is hardly taller than the lowest map.
    """
    if not config.is_chain or not all(layer.rows_alike for layer in config.layers):
        return None
    height = config.input.height
    step = STEP_ROWS * prod(layer.window.stride[0] for layer in config.layers)
    # Number of steps that are skipped. Enough rows must remain, and few events.
    missing = (height - height * TARGET_EVENTS // max(events, 1)) // step
    while missing > 0:
        lower = [_of_height(config, height - (missing + steps) * step) for steps in (2, 1, 0)]
        if lower[0] is not None and _tall_enough(lower[0]):
            return [short for short in lower if short is not None], missing
        missing -= 1
    return None


def _tall_enough(config: AcceleratorConfig) -> bool:
    return config.output.height >= MIN_ROWS and all(
        layer.window.input.height >= MIN_BUFFERS * layer.window.rows for layer in config.layers
    )


def _of_height(config: AcceleratorConfig, height: int) -> AcceleratorConfig | None:
    """Return an accelerator with another input height; ``None`` if the height is too small for its layers."""
    layers: list[LayerConfig] = []
    for layer in config.layers:
        top, _, bottom, _ = layer.window.padding
        if height + top + bottom < layer.window.extent[0] or height < layer.window.rows:
            return None
        window = replace(layer.window, input=replace(layer.window.input, height=height))
        height = window.output_height
        outputs = (replace(layer.output, height=height),)
        layers.append(replace(layer, compute=replace(layer.compute, window=window), outputs=outputs))
    return replace(config, layers=tuple(layers))
