"""The emitted engine in Icarus, in front of a memory that others wrote: cocotbext-axi's, which checks bursts itself.

The default run has the same with the engine's bus wrapper (test_engine_wrapper.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cocotb_bench
import numpy as np
import pytest
from amaranth import Shape
from amaranth.lib.wiring import In
from programs import SMALL, alone, behind, conv, image

import hwgen
from hwgen.gateware.engine import axi
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.job import Job
from hwgen.gateware.engine.port import Error
from hwgen.network import golden
from hwgen.program.compile import ProgramSchedule, schedule
from hwgen.program.layout import unpack_map
from hwgen.verilog.emitted import ENGINE, engine_files

pytestmark = cocotb_bench.needs_cocotb

NEVER = 1 << 32


def with_identifiers(config: EngineConfig) -> bytes:
    """A module ``bench`` around the engine: all reads and writes have identifier 0, without which the model has no
    bus."""
    ports = {"clk": "input", "rst": "input", "start": "input", "stop": "input"}
    ports |= {"program_base": "input [31:0]", "pace": "input [15:0]"}
    ports |= {"done": "output", "error": f"output [{Shape.cast(Error).width - 1}:0]"}
    for name, member in axi.Master(data_bytes=config.bus_bytes).members.items():
        direction = "input" if member.flow is In else "output"
        ports[f"m_axi__{name}"] = f"{direction} [{Shape.cast(member.shape).width - 1}:0]"
    joined = ", ".join(f".{name}({name})" for name in ports)
    identifiers = {"m_axi__arid": "output", "m_axi__awid": "output", "m_axi__rid": "input", "m_axi__bid": "input"}
    listed = ", ".join(f"{direction} {name}" for name, direction in (ports | identifiers).items())
    driven = "assign m_axi__arid = 0; assign m_axi__awid = 0;"
    return f"module bench({listed});\n{driven}\n{ENGINE} engine({joined});\nendmodule\n".encode()


@pytest.fixture(scope="module")
def circuit():
    return engine_files(SMALL) | {"bench.v": with_identifiers(SMALL)}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """In which the engine is compiled once."""
    return tmp_path_factory.mktemp("icarus")


def run(circuit, place: Path, memory: bytes, **scenario: Any) -> bytes:
    """What lies in memory after a run."""
    before, after = place / "before.bin", place / "after.bin"
    before.write_bytes(memory)
    told: dict[str, Any] = {"image": str(before), "result": str(after), "runs": [0], "pause": 0, "reset_at": 0}
    told |= {"damaged": [], "forbidden": {"read": NEVER, "write": NEVER}}
    cocotb_bench.run(circuit, "bench", "cocotb_engine", place, **told | scenario)
    return after.read_bytes()


def check(circuit, place: Path, found: ProgramSchedule, **scenario: Any) -> None:
    """Outputs are the golden model's, and nothing beside maps was written."""
    memory, frames = image(found, 0)
    after = run(circuit, place, memory, **scenario)
    (expected,) = golden.outputs(found.network, frames)
    (output,) = found.outputs
    values = unpack_map(after[output.address : output.address + output.size], found.network.output)
    np.testing.assert_array_equal(values, expected[0])
    assert after[: len(found.image)] == found.image


@pytest.fixture(scope="module")
def short() -> ProgramSchedule:
    """A convolution on a small map."""
    return schedule(alone(conv(channels=9, size=(5, 5))), SMALL)


@pytest.mark.long
def test_a_convolution(circuit, place, short):
    """Pauses on every channel, a reset in the midst of a first attempt, a refused program, and then two runs."""
    wrong = [8 * (5 * Job.BYTES + 20)]
    check(circuit, place, short, pause=0.2, reset_at=333, damaged=wrong, runs=[Error.DAMAGED.value, 0, 0])


@pytest.mark.long
@pytest.mark.parametrize(("pause", "cycle"), [(0, 0), (0.7, 0), (0.2, 7), (0.2, 1500)])
def test_pauses_and_resets(circuit, place, short, pause, cycle):
    check(circuit, place, short, pause=pause, reset_at=cycle)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "error"), [("read", Error.READ_SLAVE), ("write", Error.WRITE_SLAVE)])
def test_errors(circuit, place, short, kind, error):
    """Each start of a program that touches what memory refuses ends with the error."""
    memory, _ = image(short, 0)
    refused = short.outputs[0].address if kind == "write" else short.inputs[0].address
    forbidden = {"read": NEVER, "write": NEVER} | {kind: refused}
    run(circuit, place, memory, forbidden=forbidden, runs=[error.value] * 2, pause=0.2)


@pytest.mark.long
@pytest.mark.parametrize("bus_bytes", [4, 16, 32, 64])
def test_other_buses(tmp_path, bus_bytes):
    """Two beats a word; two words a beat, beside bursts of a word a beat, and rows that begin with half a beat."""
    config = behind(bus_bytes)
    other = engine_files(config) | {"bench.v": with_identifiers(config)}
    check(other, tmp_path, schedule(alone(conv(channels=9, size=(5, 5))), config), pause=0.2, reset_at=333, runs=[0, 0])


@pytest.mark.long
@pytest.mark.parametrize("pause", [0, 0.3])
def test_a_network(circuit, place, pause):
    check(circuit, place, schedule(hwgen.load("lenet5").network, SMALL), pause=pause)
