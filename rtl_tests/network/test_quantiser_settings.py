"""One network, quantised with all usual settings of ONNX Runtime's quantiser: each is built whole, and equal."""

from __future__ import annotations

import pytest
from quantiser_settings import SETTINGS, TAILS, quantised
from referees import compare

#: Tried by default; the others in the long run.
FIRST = {
    ("a pair for each reader, symmetric", "ReduceMean, kept"),
    ("operators on integers, all", "GlobalAveragePool"),
    ("some operators", "ReduceMean"),
}


@pytest.mark.parametrize(
    ("setting", "tail"),
    [
        pytest.param(setting, tail, marks=[] if (setting, tail) in FIRST else pytest.mark.long)
        for setting in SETTINGS
        for tail in TAILS
    ],
)
def test_equal(setting, tail, tmp_path) -> None:
    model, writer = quantised(setting, tail)
    compare(model, writer.frames(6), tmp_path).check()
