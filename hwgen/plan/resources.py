"""What an accelerator takes of a device: multipliers and block RAM, from the configurations alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.gateware.layer import LayerConfig
from hwgen.gateware.multiply import MultiplyConfig
from hwgen.plan.memory import block_rams


@dataclass(frozen=True, kw_only=True)
class Resources:
    """DSP48E1 slices and 36 kbit block RAMs (in halves: a RAMB18 is 0.5)."""

    dsp: int
    bram36: float

    def __add__(self, other: Resources) -> Resources:
        return Resources(dsp=self.dsp + other.dsp, bram36=self.bram36 + other.bram36)

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


def estimate(config: AcceleratorConfig) -> Resources:
    """Of all layers together."""
    total = Resources(dsp=0, bram36=0)
    for layer in config.layers:
        total += layer_resources(layer)
    return total


def layer_resources(layer: LayerConfig) -> Resources:
    """Of one layer: multipliers, weight memories, line buffer, FIFO."""
    window = layer.window
    bram = window.row_banks * window.column_banks * block_rams(window.input.data_bits, window.bank_depth)
    bram += block_rams(layer.fifo.width, layer.fifo.depth)
    if isinstance(layer.compute, MultiplyConfig):
        bram += sum(block_rams(width, layer.compute.rom_depth) for width in layer.compute.rom_widths)
    return Resources(dsp=layer.multipliers, bram36=bram)
