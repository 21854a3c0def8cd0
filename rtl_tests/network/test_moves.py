"""What moves pixels and channels alone, reorderings and selections: resources and paths against Yosys."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hwgen.gateware.cost import Resources
from hwgen.gateware.reorder import ReorderConfig
from hwgen.gateware.select import SelectConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.tools import synthesis
from hwgen.tools.paths import LogicPath

Measured = list[tuple[ReorderConfig | SelectConfig, Resources, LogicPath | None]]


@pytest.fixture(scope="module")
def measured() -> Measured:
    """Components with what Yosys makes of them: all in one run, as it takes seconds to start."""
    beat = BeatFormat(channels=32, height=4, width=12, lanes=4, bits=8, signed=True, groups=4)
    parts: list[ReorderConfig | SelectConfig] = [
        ReorderConfig(input=beat, blocks=(2, 2), opens=True),
        ReorderConfig(input=replace(beat, width=2), blocks=(2, 2), opens=True),
        ReorderConfig(input=replace(beat, groups=1, lanes=5), blocks=(2, 3), opens=False),
        ReorderConfig(input=beat, blocks=(1, 4), opens=True),
    ]
    beat = BeatFormat(channels=24, height=3, width=4, lanes=5, bits=8, signed=True)
    shuffle = tuple(np.arange(24).reshape(3, 8).T.ravel().tolist())
    parts += [
        SelectConfig(input=beat, index=shuffle, lanes=4),
        SelectConfig(input=replace(beat, pixels=2, lanes=24), index=shuffle, lanes=1),
        SelectConfig(input=beat, index=tuple(range(7, 16)), lanes=9),
    ]
    return list(zip(parts, *synthesis.measure_paths(parts), strict=True))


@pytest.mark.long
@pytest.mark.parametrize(("kind", "count"), [(ReorderConfig, 4), (SelectConfig, 3)])
def test_resources(measured: Measured, kind: type, count: int) -> None:
    """Flip-flops within a tenth, and of selections within a few; LUTs within a quarter."""
    some = [row for row in measured if isinstance(row[0], kind)]
    assert len(some) == count
    for part, found, path in some:
        expected = part.resources
        assert (expected.dsp, expected.bram36) == (found.dsp, found.bram36)
        selects = kind is SelectConfig
        assert abs(expected.ff - found.ff) <= (4 if selects else 0.1 * found.ff + 2), part
        assert abs(expected.lut - found.lut) <= 0.25 * found.lut + (6 if selects else 8), part
        assert path is None or path.delay <= 3.3
