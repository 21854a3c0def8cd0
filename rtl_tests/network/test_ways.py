"""One network, quantised in all usual ways of ONNX Runtime's quantiser: each is built whole, and equal."""

from __future__ import annotations

import pytest
from by_parts import compare
from ways import TAILS, WAYS, quantised

#: Tried by default; the others in the long run.
FIRST = {
    ("a pair for each reader, symmetric", "ReduceMean, kept"),
    ("operators on integers, all", "GlobalAveragePool"),
    ("some operators", "ReduceMean"),
}


@pytest.mark.parametrize(
    ("way", "tail"),
    [pytest.param(way, tail, marks=[] if (way, tail) in FIRST else pytest.mark.long) for way in WAYS for tail in TAILS],
)
def test_equal(way, tail, tmp_path) -> None:
    model, writer = quantised(way, tail)
    compare(model, writer.frames(6), tmp_path).check()
