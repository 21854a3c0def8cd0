"""Designs of retrained models: new weights in the hardware of an existing design."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from hwgen.api.design import AcceleratorDesign

if TYPE_CHECKING:
    from hwgen.emit.weights import Loadable
    from hwgen.simulate import Options, Run

__all__ = ["Retrained"]


@dataclass(frozen=True, repr=False)
class Retrained(AcceleratorDesign):
    """Design of a retrained model that runs on the hardware built for another model with the same layers."""

    folder: Loadable = field(kw_only=True)
    """Existing design whose hardware the model uses, read from its folder."""

    @cached_property
    def weights(self) -> bytes:
        """Contents of the file from which the existing design loads the model's weights."""
        from hwgen.emit import weights
        from hwgen.network import host

        return weights.write(self.config, host.describe(self.network), self.model.name)

    def _run(self, frames: Sequence[np.ndarray], options: Options) -> Run:
        """Simulate the existing design's own Verilog on frames, after it has loaded the model's weights.

        Returns
        -------
        Run
            Outputs, cycles and traffic of the simulated hardware.
        """
        from hwgen import simulate
        from hwgen.emit import weights
        from hwgen.simulate.loading import Loading, LoadingConfig

        _, load = weights.read(self.weights, self.folder.top)
        inner = replace(self.config, input_names=self.folder.inputs, output_names=self.folder.outputs)
        config: Any = LoadingConfig(inner, load, self.folder.top)
        return simulate.run_groups([config], frames, replace(options, component=Loading, beside=self.folder.verilog()))
