"""Settings of the whole suite: hypothesis without deadlines, waveforms on request."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import testbench
from hypothesis import HealthCheck, settings

# Simulated hardware takes its time, and many random layers can't be. A failure prints the blob that repeats it
# (``@reproduce_failure``).
settings.register_profile(
    "hwgen",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
settings.load_profile("hwgen")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--vcd", metavar="DIR", help="write the last simulation of each test as DIR/TEST.vcd")


def pytest_runtest_setup(item: pytest.Item) -> None:
    directory = item.config.getoption("--vcd")
    if directory:
        Path(directory).mkdir(parents=True, exist_ok=True)
        testbench.waves = Path(directory) / (re.sub(r"\W+", "_", item.nodeid) + ".vcd")
