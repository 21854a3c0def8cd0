"""The obligations of whole designs, against the counts that `bench/obligations.py` keeps."""

from __future__ import annotations

import shutil

import obligations
import pytest
from proofs import proved
from unchanged import differences

from hwgen.gateware import fifo_proof
from hwgen.gateware.fifo import FifoConfig
from hwgen.obligations.site import Proofs
from hwgen.prove import catalogue

#: Designs that the default run plans.
QUICK = ("digits", "digits-weights-at-run-time", "vgg16-pyramid")


def marked(*quick: str) -> list:
    return [pytest.param(name, marks=() if name in quick else pytest.mark.long) for name in obligations.DESIGNS]


@pytest.mark.parametrize("name", marked(*QUICK))
def test_a_design_has_the_obligations_that_are_kept(name):
    counted = obligations.counts(obligations.DESIGNS[name])
    assert [*differences(obligations.kept(name), counted)] == []


def test_an_obligation_that_is_left_out_is_a_difference(monkeypatch):
    found = fifo_proof.obligations
    _, *others = catalogue.CATALOGUE[FifoConfig].kinds

    def fewer(config, site):
        return [each for each in found(config, site) if each.kind != "occupancy"]

    monkeypatch.setitem(catalogue.CATALOGUE, FifoConfig, Proofs((fewer, *others)))
    counted = obligations.counts(obligations.DESIGNS["digits"])
    assert [*differences(obligations.kept("digits"), counted)] == ["FifoConfig.occupancy: only before"]


def test_a_part_that_is_left_out_is_a_difference(monkeypatch):
    monkeypatch.setattr(fifo_proof, "counter_facts", lambda config: {})
    counted = obligations.counts(obligations.DESIGNS["digits"])
    (line,) = differences(obligations.kept("digits"), counted)
    assert line.startswith("FifoConfig.occupancy: 6/18 ")
    assert " before, 6/12 " in line


@pytest.mark.skipif(not shutil.which("berkeley-abc"), reason="needs berkeley-abc")
@pytest.mark.parametrize("name", marked())
def test_what_the_netlist_shows_is_proved(name):
    case = obligations.DESIGNS[name]
    for config, top, verilog in obligations.circuits(case.load().plan(case.board, **case.steering)):
        found = [each for each in catalogue.obligations(config, top, verilog) if each.methods == ("structure",)]
        assert found
        assert {proof.verdict.result for proof in proved(found, verilog).values()} == {"proved"}
