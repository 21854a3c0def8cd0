"""Proof obligations of the programmable engine's bus shell, which cover only its register bank."""

from __future__ import annotations

from hwgen.gateware.bus.engine_shell import EngineShellConfig
from hwgen.obligations.obligation import Proofs

PROOFS = {
    EngineShellConfig: Proofs(
        components=lambda shell: {"registers": shell.bank},
        reasons={"": "only the registers of an engine's bus shell are proved: the rest is simulated"},
    )
}
