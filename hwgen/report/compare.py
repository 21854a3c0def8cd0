"""Text table of a layer-by-layer comparison of ONNX Runtime, golden model and hardware, and cells for other tables."""

from __future__ import annotations

from typing import Any, Protocol

from hwgen.report.table import columns

NONE = "-"

HEAD = (
    *("layer", "kind", "output", "values"),
    *("ORT/golden", "largest", "hardware/golden", "largest", "first difference"),
)
"""Tuple of titles of the columns in the table of a comparison."""

LEFT = (0, 1, 8)
"""Tuple of indices of the comparison table's left-aligned columns, which hold words."""


class ComparisonValues(Protocol):
    """Protocol of the comparisons shown here: any object whose ``to_json`` returns JSON-like values."""

    def to_json(self) -> dict[str, Any]: ...


def table(comparison: ComparisonValues) -> str:
    """Return a comparison as a text table: a line per layer and output, and, given labels, the correct frames."""
    layers, outputs = rows(comparison)
    text = columns([HEAD, *layers, *outputs], left=LEFT, rules=[1, 1 + len(layers)])
    return "\n".join([*text, "", *under(comparison)])


def rows(comparison: ComparisonValues) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Return two lists of a comparison table's rows (tuples of cells): one row per layer, and one per model output."""
    seen, outputs = comparison.to_json(), []
    for output in seen["outputs"]:
        name = f"output {output['name']}" if len(seen["outputs"]) > 1 else "output"
        cells = [cell for which in ("runtime", "hardware") for cell in _distance(output[which])]
        outputs.append((name, "", "", f"{output['values']:,}", *cells, ""))
    return [_layer(layer) for layer in seen["layers"]], outputs


def under(comparison: ComparisonValues) -> list[str]:
    """Return a list of lines below a comparison table: the columns' meanings, and, given labels, correct frames."""
    seen = comparison.to_json()
    text = ["ORT/golden, hardware/golden: number of differing values (-: not visible), and the largest difference."]
    if "right" in seen:
        names = {"runtime": "ONNX Runtime", "golden": "the golden model", "hardware": "the hardware"}
        counts = [f"{names[which]} {count:,} ({count / seen['frames']:.2%})" for which, count in seen["right"].items()]
        text.append(f"correct of {seen['frames']:,} frames: {', '.join(counts)}")
    return text


def _layer(layer: dict[str, Any]) -> tuple[str, ...]:
    cells, firsts = [], []
    for which, name in (("runtime", "ORT"), ("hardware", "hardware")):
        tally = layer[which]
        cells += (NONE, NONE) if tally is None else (f"{tally['differing']:,}", f"{tally['largest']:,}")
        if tally is not None and tally["first"] is not None:
            firsts.append(f"{name} {_location(tally['first'])}")
    values = max((tally["compared"] for which in ("runtime", "hardware") if (tally := layer[which])), default=0)
    shape = "x".join(map(str, layer["shape"]))
    return (layer["name"], layer["kind"], shape, f"{values:,}", *cells, "; ".join(firsts))


def _location(first: dict[str, int]) -> str:
    where = ", ".join(f"{name} {first[name]}" for name in ("frame", "channel", "row", "column"))
    return f"{where}: {first['value']}, golden {first['expected']}"


def _distance(difference: dict[str, Any]) -> tuple[str, str]:
    return f"{difference['differing']:,}", f"{difference['largest']:g}"


def verdict(comparison: Any) -> str:
    """Return one line of text: whether hardware, golden model and ONNX Runtime agree, with the latencies in cycles."""
    values = sum(row.hardware.compared for row in comparison.rows if row.hardware is not None)
    ours = (
        f"every one of {values:,} values of the hardware's layers equals the golden model"
        if comparison.ok
        else ("the hardware differs from the golden model")
    )
    theirs = "which equals ONNX Runtime" if comparison.as_runtime else "which differs from ONNX Runtime"
    if comparison.as_runtime and comparison.is_rounded:
        theirs += " except for the last bits of values that it sums in float32"
    cycles = f"latency {comparison.cycles['latency']:,} cycles; predicted {comparison.cycles['predicted_latency']:,}"
    return f"{ours}, {theirs}; {cycles}"
