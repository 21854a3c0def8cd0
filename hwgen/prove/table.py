"""Results of proofs as a table of text, and as a JSON document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from hwgen.prove.discharge import Proof
from hwgen.prove.verdict import RESULTS
from hwgen.report.table import columns

__all__ = ["document", "summary", "table"]


def table(proofs: Sequence[Proof]) -> str:
    """Return proofs as a table, one line per obligation."""
    rows = [("property", "instance", "module", "engine", "s", "result")]
    for proof in proofs:
        obligation, verdict = proof.obligation, proof.verdict
        seconds = "cached" if proof.is_cached else f"{proof.seconds:.1f}"
        result = f"{verdict.result}: {verdict.detail}" if verdict.detail else verdict.result
        rows.append((obligation.kind, obligation.path or "top", obligation.module, verdict.engine, seconds, result))
    return "\n".join(columns(rows, left=(0, 1, 2, 3, 5), rules=(1,)))


def summary(proofs: Sequence[Proof]) -> str:
    """Return one line with the number of obligations by result; obligations that are undecided are named so."""
    counts = Counter(proof.verdict.result for proof in proofs)
    parts = [f"{counts[result]} {result}" for result in RESULTS if counts[result]]
    return f"{len(proofs)} obligations: {', '.join(parts)}"


def document(proofs: Sequence[Proof], changed: Sequence[str]) -> dict[str, Any]:
    """Return proofs as a JSON document: number of obligations by result, an entry for each, and changed files.

    ``changed`` has the paths of the Verilog files, and of the contents of memories, that were changed since the build.
    """
    counts = Counter(proof.verdict.result for proof in proofs)
    return {
        "counts": {result: counts[result] for result in RESULTS},
        "proofs": [proof.to_json() for proof in proofs],
        "changed": list(changed),
    }
