"""Device of a session that computes on a board behind a serial port, by the driver ``NAME_serial.py``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hwgen.api.arrays import Values, listed
from hwgen.errors import DeviceError, InputError
from hwgen.host.board import driver_of
from hwgen.host.device import Hardware, SessionDevice, check_options

__all__ = ["SerialBoard"]


class SerialBoard(SessionDevice):
    """Board behind a serial port, on which the bitstream of the design's folder is loaded.

    Parameters
    ----------
    hardware : Hardware
        Design in a folder.
    port : str
        Serial port, such as ``/dev/ttyUSB0``.
    **options
        Options of the driver's ``connect``, such as ``timeout``.

    Raises
    ------
    InputError
        If there is no driver in the folder.
    DeviceError
        If the port can't be opened, or the board does not answer.
    """

    name = "serial"

    def __init__(self, hardware: Hardware, *, port: str | None = None, **options: Any):
        super().__init__(hardware)
        if port is None:
            raise InputError("device serial needs a port, such as port='/dev/ttyUSB0'")
        self._module = driver_of(hardware, "serial")
        check_options(self.name, options, self._module.connect)
        try:
            self.driver = self._module.connect(port, **options)
            """Driver of the design."""
        except (self._module.SerialError, OSError) as error:
            raise DeviceError(f"{port}: {error}") from None

    def compute(self, x: Mapping[str, np.ndarray]) -> Values:
        """Compute frames on the board, and return the model's outputs.

        Raises
        ------
        DeviceError
            If bytes are lost or changed, or the board does not answer.
        """
        from hwgen.network import host

        model = self.hardware.model
        (prepared,) = host.input_frames(model.network, [*listed(model.prepare(dict(x)))])
        try:
            made = self.driver.run(prepared, integers=True)
        except (self._module.SerialError, OSError) as error:
            raise DeviceError(str(error)) from None
        return model.complete(host.output_maps(model.network, (made,)), dict(x))
