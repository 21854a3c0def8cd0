"""The interval of a plan is the composed schedule's, and no plan within the same budgets has a shorter one."""

from __future__ import annotations

from pathlib import Path

import pytest

import hwgen

KEPT = Path(__file__).resolve().parent.parent / "kept"

#: Networks with readers that take their input in bursts: options, interval, DSP slices. With narrow beats in all FIFOs
#: the same factors would have intervals of 156, 5,632 and 720 cycles.
BURSTS = {
    "upsample": ({"template": "stream", "multipliers": "dsp", "dsp": 8}, 108, 8),
    "unet": ({"multipliers": "dsp", "dsp": 150}, 4_096, 146),
    "dominated": ({"dsp": 40, "lut": 10_000}, 420, 40),
}


@pytest.mark.parametrize("name", BURSTS)
def test_bursts(name, tmp_path):
    """As short as the cycles of the slowest layer, in no more slices; the plan is read back as it was."""
    options, interval, slices = BURSTS[name]
    model = hwgen.load(str(KEPT / f"interval-{name}.onnx"))
    design = model.plan(board="zedboard", **options)
    assert design.interval == interval == max(layer.cycles for layer in design.config.layers)
    assert design.resources["dsp"] <= slices
    (path := tmp_path / "plan.json").write_text(design.to_json())
    assert model.plan(board="zedboard", plan=path).to_json() == design.to_json()
