"""Proofs of the engine's fixed-point unit: texts that say why its registers and results have no properties."""

from __future__ import annotations

from hwgen.gateware.engine.fixed_unit import FixedUnitConfig
from hwgen.obligations.obligation import Proofs

_SIMULATED = "programs, whose products of wide values take too long to prove, are simulated"

PROOFS = {FixedUnitConfig: Proofs(reasons={"": _SIMULATED, "*": _SIMULATED}, resets=False)}
