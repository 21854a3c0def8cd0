"""Proofs of an engine's memory ports: why they have none."""

from __future__ import annotations

from hwgen.gateware.bus.memory_ports import MemoryPortsConfig
from hwgen.obligations.obligation import Proofs

_SIMULATED = "bursts of all kinds over ports with random stalls are simulated"

PROOFS = {MemoryPortsConfig: Proofs(reasons={"": _SIMULATED, "*": _SIMULATED})}
