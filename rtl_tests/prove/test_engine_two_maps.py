"""Proofs of products and sums of two maps in an engine's finish, and faults that they must refute."""

from __future__ import annotations

import shutil

import pytest
from proofs import MODULE, emitted, marked, of_component, proved, with_fault

from hwgen.gateware.engine.add import TableAddConfig
from hwgen.gateware.engine.map_product import MapProductConfig

pytestmark = pytest.mark.skipif(not shutil.which("berkeley-abc"), reason="needs berkeley-abc")

PRODUCT, SUM = MapProductConfig(lanes=2), TableAddConfig(lanes=2)
#: Component, begin of the statement that refutes a fault, text of the Verilog, and faulty text.
FAULTS = {
    "a zero point is added": (PRODUCT, "Each value", "$signed(first[7:0]) - ", "$signed(first[7:0]) + "),
    "a value is another lane's": (PRODUCT, "Each value", "$signed(second[15:8])", "$signed(second[7:0])"),
    "a sign is left out": (PRODUCT, "The outputs", "cycle_2_1 <= second_1[8]", "cycle_2_1 <= 1'b0"),
    "a digit is another": (PRODUCT, "The outputs", ".digit(second_0[3:1])", ".digit({second_0[3:2], 1'b0})"),
    "a share is left out": (SUM, "The sum", "sum_1 <= $signed(share_1_0_value) + ", "sum_1 <= "),
    "a tie is not rounded up": (SUM, "The sum", ">= rounding_0_value", "> rounding_0_value"),
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HWGEN_CACHE", str(tmp_path / "cache"))


def test_each_obligation_has_two_faults():
    begins = [begin for _, begin, _, _ in FAULTS.values()]
    for config in (PRODUCT, SUM):
        for obligation in of_component(config, emitted(config)):
            if obligation.kind != "reset":
                assert sum(obligation.statement.startswith(begin) for begin in begins) >= 2, obligation.statement


@pytest.mark.parametrize("name", marked(FAULTS, "a tie is not rounded up"))
def test_faults_are_refuted(name):
    config, begin, old, new = FAULTS[name]
    verilog = with_fault(emitted(config), MODULE, old, new)
    affected = [obligation for obligation in of_component(config, verilog) if obligation.statement.startswith(begin)]
    assert {proof.verdict.result for proof in proved(affected, verilog).values()} == {"refuted"}


@pytest.mark.long
@pytest.mark.parametrize("config", [PRODUCT, SUM])
def test_products_and_sums_are_proved(config):
    proofs = proved(of_component(config, emitted(config)), emitted(config))
    assert {name: proof.verdict for name, proof in proofs.items() if proof.verdict.result != "proved"} == {}
