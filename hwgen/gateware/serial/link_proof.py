"""Proofs of the serial link to a host: there are none, and a text says why."""

from __future__ import annotations

from hwgen.gateware.serial.link import SerialLinkConfig
from hwgen.gateware.serial.uart import UartReceiver, UartTransmitter
from hwgen.obligations.obligation import Proofs

PROOFS = {
    SerialLinkConfig: Proofs(reasons={"": "the link to a host is simulated"}, others=(UartReceiver, UartTransmitter))
}
