"""What people read of a comparison of ONNX Runtime, the golden model and the hardware."""

from __future__ import annotations

from typing import Any, Protocol

from hwgen.report.table import columns

NONE = "-"

HEAD = (
    *("layer", "kind", "output", "values"),
    *("ORT/golden", "largest", "hardware/golden", "largest", "first difference"),
)
"""The columns of the table."""

LEFT = (0, 1, 8)
"""Those of words, which stand to the left."""


class Found(Protocol):
    """A comparison as plain values (`hwgen.simulate.compare.Comparison`)."""

    def to_json(self) -> dict[str, Any]: ...


def table(found: Found) -> str:
    """A line a layer and an output, and who has how many frames right."""
    layers, outputs = rows(found)
    text = columns([HEAD, *layers, *outputs], left=LEFT, rules=[1, 1 + len(layers)])
    return "\n".join([*text, "", *under(found)])


def rows(found: Found) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """The cells of each layer, and of each of the model's outputs."""
    seen, outputs = found.to_json(), []
    for output in seen["outputs"]:
        name = f"output {output['name']}" if len(seen["outputs"]) > 1 else "output"
        cells = [cell for which in ("runtime", "hardware") for cell in _distance(output[which])]
        outputs.append((name, "", "", f"{output['values']:,}", *cells, ""))
    return [_layer(layer) for layer in seen["layers"]], outputs


def under(found: Found) -> list[str]:
    """What the columns mean, and who has how many frames right."""
    seen = found.to_json()
    text = ["ORT/golden, hardware/golden: values that differ (-: none to be seen), and the largest difference."]
    if "right" in seen:
        names = {"runtime": "ONNX Runtime", "golden": "the golden model", "hardware": "the hardware"}
        parts = [f"{names[which]} {count:,} ({count / seen['frames']:.2%})" for which, count in seen["right"].items()]
        text.append(f"frames right of {seen['frames']:,}: {', '.join(parts)}")
    return text


def _layer(layer: dict[str, Any]) -> tuple[str, ...]:
    cells, firsts = [], []
    for which, name in (("runtime", "ORT"), ("hardware", "hardware")):
        tally = layer[which]
        cells += (NONE, NONE) if tally is None else (f"{tally['differing']:,}", f"{tally['largest']:,}")
        if tally is not None and tally["first"] is not None:
            firsts.append(f"{name} {_place(tally['first'])}")
    values = max((tally["compared"] for which in ("runtime", "hardware") if (tally := layer[which])), default=0)
    shape = "x".join(map(str, layer["shape"]))
    return (layer["name"], layer["kind"], shape, f"{values:,}", *cells, "; ".join(firsts))


def _place(first: dict[str, int]) -> str:
    where = ", ".join(f"{name} {first[name]}" for name in ("frame", "channel", "row", "column"))
    return f"{where}: {first['value']}, golden {first['expected']}"


def _distance(found: dict[str, Any]) -> tuple[str, str]:
    return f"{found['differing']:,}", f"{found['largest']:g}"


def verdict(found: Any) -> str:
    """What it comes to, in a line."""
    values = sum(row.hardware.compared for row in found.rows if row.hardware is not None)
    ours = (
        f"every one of {values:,} values of the hardware's layers equals the golden model"
        if found.ok
        else ("the hardware differs from the golden model")
    )
    theirs = "which equals ONNX Runtime" if found.as_runtime else "which differs from ONNX Runtime"
    cycles = f"latency {found.cycles['latency']:,} cycles; predicted {found.cycles['predicted_latency']:,}"
    return f"{ours}, {theirs}; {cycles}"
