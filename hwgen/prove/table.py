"""Results of proofs as a text table and as a JSON document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from hwgen.prove.coverage import CoveredInstance
from hwgen.prove.discharge import Proof
from hwgen.prove.verdict import RESULTS
from hwgen.report.table import columns

#: Note for users: what properties are computed from, and what ties that to the model.
SOURCE = (
    "every property is computed from hwgen's own configuration of the design, not from the model's file: "
    "'hwgen simulate' and 'hwgen compare' check that both agree"
)


def table(proofs: Sequence[Proof]) -> str:
    """Return the results of proofs as a text table, one line per obligation."""
    rows = [("property", "instance", "module", "engine", "s", "result")]
    for proof in proofs:
        obligation, verdict = proof.obligation, proof.verdict
        seconds = "cached" if proof.is_cached else f"{proof.seconds:.1f}"
        result = f"{verdict.result}: {verdict.detail}" if verdict.detail else verdict.result
        rows.append((obligation.kind, obligation.path or "top", obligation.module, verdict.engine, seconds, result))
    return "\n".join(columns(rows, left=(0, 1, 2, 3, 5), rules=(1,)))


def summary(proofs: Sequence[Proof]) -> str:
    """Return one line with the number of obligations by result: proved, refuted, vacuous, undecided."""
    counts = Counter(proof.verdict.result for proof in proofs)
    parts = [f"{counts[result]} {result}" for result in RESULTS if counts[result]]
    return f"{len(proofs)} obligations: {', '.join(parts)}"


def uncovered(covered: Sequence[CoveredInstance]) -> str:
    """Return a text table of instances without a functional property and of uncovered ports, with reasons.

    Instances of one module with the same parent and the same reason share a line.
    """
    without = [instance for instance in covered if not instance.is_whole]
    if not without:
        return f"each of {len(covered)} instances has a functional property"
    lines: dict[tuple[str, ...], list[str]] = {}
    for instance in without:
        around, path = instance.path.rpartition(".")[0], instance.path or "top"
        if instance.reason:
            lines.setdefault((instance.module, around, instance.reason), []).append(path)
        for port, reason in instance.ports.items():
            lines.setdefault((instance.module, instance.path, reason), []).append(f"{path}, port {port}")
    rows = [("instance", "module", "why no property covers its outputs")]
    rows += [
        (f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0], module, reason)
        for (module, _, reason), names in lines.items()
    ]
    head = f"{len(without)} of {len(covered)} instances have no functional property, or ports without one:"
    return "\n".join([head, *columns(rows, left=(0, 1, 2), rules=(1,))])


def document(proofs: Sequence[Proof], covered: Sequence[CoveredInstance], changed: Sequence[str]) -> dict[str, Any]:
    """Return a dict of results of proofs as a JSON document: counts by result, proofs, instances, and changed files.

    ``covered`` has all instances, with the reason if one has no functional property. ``changed`` has the paths of the
    Verilog files, and of the contents of memories, that were changed since the build.
    """
    counts = Counter(proof.verdict.result for proof in proofs)
    return {
        "counts": {result: counts[result] for result in RESULTS},
        "proofs": [proof.to_json() for proof in proofs],
        "instances": [instance.to_json() for instance in covered],
        "changed": list(changed),
    }
