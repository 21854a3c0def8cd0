"""Maps so tall that their events would be too many: what their schedule comes to is found on fewer rows.

Rows inside a map wait for each other in the same way, whichever they are. Once a schedule has settled, each takes as
many cycles as the one before, so that cycles grow evenly with the rows. Three heights are scheduled exactly: if the
third comes as long after the second as that after the first, so do all that follow. Otherwise nothing is said.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.layer import LayerConfig

#: Events of the tallest of the three maps in so many frames as are scheduled, about.
SHORT_EVENTS = 1 << 23

#: Rows of the last layer's output from one height to the next; and of the least height, at least.
STEP_ROWS, LEAST_ROWS = 12, 48

#: Rows of the least height at least, in those of each layer's line buffer.
LEAST_BUFFERS = 4


def shortened(config: AcceleratorConfig, events: int) -> tuple[list[AcceleratorConfig], int] | None:
    """The same on maps of three heights, and how often the step between them is missing from the third to the whole.

    Parameters
    ----------
    events : int
        Of the whole map in the frames that are scheduled.

    Returns
    -------
    ``None`` where layers work in tiles or are no chain, or the map is not much taller than what must be scheduled.
    """
    if not config.is_chain or not all(layer.rows_alike for layer in config.layers):
        return None
    height = config.input.height
    step = STEP_ROWS * prod(layer.window.stride[0] for layer in config.layers)
    # Steps that are left out: as many as leave few events, and rows enough.
    missing = (height - height * SHORT_EVENTS // max(events, 1)) // step
    while missing > 0:
        lower = [_of_height(config, height - (missing + more) * step) for more in (2, 1, 0)]
        if lower[0] is not None and _tall_enough(lower[0]):
            return [short for short in lower if short is not None], missing
        missing -= 1
    return None


def _tall_enough(config: AcceleratorConfig) -> bool:
    return config.output.height >= LEAST_ROWS and all(
        layer.window.input.height >= LEAST_BUFFERS * layer.window.rows for layer in config.layers
    )


def _of_height(config: AcceleratorConfig, height: int) -> AcceleratorConfig | None:
    """With an input of another height; ``None`` if it is too low."""
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
