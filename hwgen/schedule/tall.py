"""Lower feature maps on which the steady state of a chain of layers on a tall map can be shown.

Rows inside a map wait for each other in the same way, whatever their index. So layers on a lower map are in the same
states as on a tall one, for fewer rows.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.layer import LayerConfig

#: Approximate number of scheduled events, over all frames, of a lower map.
TARGET_EVENTS = 1 << 23

#: Output rows of the last layer: step between heights that are tried, and minimum.
STEP_ROWS, MIN_ROWS = 12, 48

#: Smallest height of each layer's input for a lower map, as a multiple of the line buffer's rows.
MIN_BUFFERS = 4


def lower(config: AcceleratorConfig, events: int) -> AcceleratorConfig | None:
    """Return the accelerator on a lower map; ``None`` if the map is hardly taller than that.

    ``None`` as well if a layer works in tiles, or the layers are no chain.

    Parameters
    ----------
    config : AcceleratorConfig
        Accelerator on the whole map.
    events : int
        Number of events of the whole map in all frames that are scheduled.
    """
    if not config.is_chain or not all(layer.rows_alike for layer in config.layers):
        return None
    height = config.input.height
    step = STEP_ROWS * prod(layer.window.stride[0] for layer in config.layers)
    # Number of steps that are skipped. Enough rows must remain, and few events.
    missing = (height - height * TARGET_EVENTS // max(events, 1)) // step
    while missing > 0:
        short = _of_height(config, height - missing * step)
        if short is not None and _tall_enough(short):
            return short
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
