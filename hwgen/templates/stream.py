"""Stream template: each layer of a group has its own circuit and line buffer, and works row by row (DeCoILFNet)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hwgen.devices import Device
from hwgen.fields import Entries, Rule
from hwgen.gateware.accelerator import AcceleratorConfig
from hwgen.network.graph import Network
from hwgen.options import STREAM
from hwgen.templates.base import Group, Refusal, Task, Template
from hwgen.templates.compose import compose
from hwgen.templates.layers import LayerPlan, read_input_pixels
from hwgen.templates.mixed import best_in_rows


@dataclass(frozen=True, kw_only=True)
class StreamTemplate(Template):
    """Template of fusion groups (layers computed together) that work row by row, each layer in its own circuit."""

    name = STREAM
    multiplies_in_luts = True

    @classmethod
    def search(cls, task: Task, begin: int, end: int, in_turn: bool) -> Group | Refusal:
        return best_in_rows(task, begin, end, in_turn, cls())

    @classmethod
    def read(cls, group: Entries, network: Network, layers: Sequence[LayerPlan]) -> StreamTemplate:
        if len(network.inputs) == 1:
            read_input_pixels(group, network, layers)
        for key in ("tile", "overlap"):
            group.value(key, Any, Rule(of=[None], reason="unless its template is pyramid"), default=None)
        return cls()

    def write(self, config: AcceleratorConfig) -> dict[str, Any]:
        pixels = [port.beat.pixels for port in config.input_ports]
        return {"tile": None, "overlap": None, "input_pixels": pixels[0] if len(pixels) == 1 else pixels}

    def summary(self, group: Group) -> list[str]:
        loader = group.config.loader
        if loader is None:
            return []
        loading = [layer.name for layer in group.network.layers if layer.loaded]
        is_whole = len(loading) == sum(layer.loadable for layer in group.network.layers)
        of_layers = "" if is_whole else f" of {', '.join(loading)}"
        return [f"weights{of_layers} are loaded at run time: {loader.packet_words:,} words of 32 bits, one per cycle"]

    def configure(self, network: Network, layers: Sequence[LayerPlan], device: Device) -> AcceleratorConfig:
        return compose(network, layers, stage=lambda op: self.stage(op, device))
