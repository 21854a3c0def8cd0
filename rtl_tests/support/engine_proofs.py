"""Proofs of an engine's units: obligations by their path, and faults seeded in the Verilog of a module."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cache

from programs import SMALL
from proofs import proved, with_fault

from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.engine import EngineDesign
from hwgen.obligations.obligation import Obligation
from hwgen.prove import catalogue
from hwgen.verilog.emitted import ENGINE, engine_files


@dataclass(frozen=True)
class Fault:
    """Fault in the Verilog of an engine's component, and the obligation that refutes it.

    Parameters
    ----------
    path, kind : str
        Path of the component, and kind of its obligation.
    old, new : str
        Text of the Verilog, and faulty text.
    module : str
        Module with the text; by default, the component's.
    statement : str
        Part of the obligation's statement, where a component has several of the kind.
    engine : EngineConfig
    """

    path: str
    kind: str
    old: str
    new: str
    module: str = ""
    statement: str = ""
    engine: EngineConfig = SMALL

    def results(self) -> set[str]:
        """Prove the obligations that the fault concerns, and return their results."""
        sound, found = engine(self.engine)
        affected = [each for each in found[self.path] if each.kind == self.kind and self.statement in each.statement]
        verilog = with_fault(sound, self.module or affected[0].module, self.old, self.new)
        return {proof.verdict.result for proof in proved(affected, verilog).values()}


@cache
def engine(config: EngineConfig) -> tuple[str, dict[str, list[Obligation]]]:
    """Return the Verilog of an engine, and its obligations by the path of their component."""
    verilog = engine_files(config)[f"{ENGINE}.v"].decode()
    found = defaultdict(list)
    for obligation in catalogue.obligations(EngineDesign(engine=config), ENGINE, verilog):
        found[obligation.path].append(obligation)
    return verilog, dict(found)


def kinds_of(found: dict[str, list[Obligation]]) -> dict[str, set[str]]:
    """Return the kinds of each component's obligations, without ``reset``, by its path."""
    return {path: {obligation.kind for obligation in each} - {"reset"} for path, each in found.items()}
