"""Device of a session that simulates the hardware's Verilog."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hwgen.api.arrays import Values
from hwgen.errors import CheckError
from hwgen.host.device import Hardware, SessionDevice, check_options

__all__ = ["Simulation"]


class Simulation(SessionDevice):
    """Simulation of the hardware, in which every value is compared with the golden model.

    Parameters
    ----------
    hardware : Hardware
        Design that is simulated.
    **options
        Options of ``Design.simulate``, such as ``jobs``.

    Raises
    ------
    InputError
        If there is no such option.
    """

    name = "simulation"

    def __init__(self, hardware: Hardware, **options: Any):
        super().__init__(hardware)
        self.options = options
        self.result = None
        """Result of the last run, with its cycles."""
        # A folder that can't be simulated, or an option that does not exist, is refused when the session begins.
        check_options(self.name, options, hardware.design.simulate)

    def compute(self, x: Mapping[str, np.ndarray]) -> Values:
        """Simulate frames, and return the model's outputs.

        Raises
        ------
        CheckError
            If a value differs from the golden model, or the hardware stops.
        """
        result = self.result = self.hardware.design.simulate(dict(x), **self.options)
        if result.mismatches:
            raise CheckError(result.summary())
        return result.outputs
