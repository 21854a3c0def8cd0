"""Width converters that are moved before their FIFOs, so that readers get whole beats in bursts.

A layer sends as few channels per cycle as it finishes. A FIFO stores these narrow beats, and a width converter after
the FIFO collects them into the reader's beats. So a reader gets a whole beat only every few cycles, however deep the
FIFO is. That is enough for a reader that takes its input evenly. A reader that takes its input in bursts, such as a
concatenation of inputs in turn, waits. A converter before the FIFO fills whole beats while the reader takes none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from hwgen.gateware.accelerator import AcceleratorConfig, Link
from hwgen.templates.layers import LayerPlan


def moved_converters(config: AcceleratorConfig, layers: Sequence[LayerPlan]) -> Iterator[tuple[LayerPlan, ...]]:
    """Yield the layers' plans with some converters before their FIFOs: first those of readers in bursts, then all.

    Only converters to wider beats move. Nothing is yielded if there are none, and nothing is yielded twice.

    Parameters
    ----------
    config : AcceleratorConfig
        Configuration of the plans, with all converters after the FIFOs.
    layers : sequence of LayerPlan
    """
    seen = [_moved(config, layers, lambda link: False)]
    for chosen in (lambda link: not _has_line_buffer(config, link), lambda link: True):
        moved = _moved(config, layers, chosen)
        if moved not in seen:
            seen.append(moved)
            yield moved


def _has_line_buffer(config: AcceleratorConfig, link: Link) -> bool:
    """Return whether the reader of a FIFO takes its input into a line buffer, which evens out bursts."""
    return link.sink == len(config.layers) or config.layers[link.sink].has_line_buffer


def _moved(
    config: AcceleratorConfig, layers: Sequence[LayerPlan], chosen: Callable[[Link], bool]
) -> tuple[LayerPlan, ...]:
    """Return the layers' plans with the converters of the chosen links before the FIFOs."""
    first = config.by_layer(
        [chosen(link) and config.layers[link.source].regroups[link.output].widens for link in config.links]
    )
    return tuple(
        replace(layer, converts_first=flags if any(flags) else ()) for layer, flags in zip(layers, first, strict=True)
    )
