"""Proofs of the CRCs of jobs and of run-time weights, and faults seeded in their Verilog that they must refute."""

import random
import struct
import subprocess
import zlib

import pytest
from needs import needs_icarus
from programs import SMALL
from proofs import ALONE, MODULE, emitted, engine, marked, proved, with_fault
from small_circuits import LOADER

from hwgen.gateware.checksum_proof import ChecksumUnit, crc_function
from hwgen.obligations.modules import modules_of
from hwgen.prove import catalogue
from hwgen.prove.methods.cones import Cone
from hwgen.prove.methods.parity import parity

pytestmark = ALONE

CRC = "memory_side.check.crc"
STEP, OUTPUTS = "Each word takes the state", "The outputs are"
"""Beginnings of the statements of a CRC's obligations."""
#: Faults in a loader of weights: the statement that refutes them, the module, text of the Verilog, and faulty text.
LOADS = {
    "a bit of a word is left out": (STEP, f"{MODULE}_crc", " ^ data[0];", ";"),
    "a start is ignored": (STEP, f"{MODULE}_crc", "else if (start)", "else if (start & data[0])"),
    "another word matches": (OUTPUTS, f"{MODULE}_crc", "32'hdebb20e3", "32'hdebb20e2"),
    "each word enters the CRC": ("Only a load", MODULE, ".valid(crc__valid)", ".valid(i__valid)"),
    "the CRC goes on from load to load": ("Only a load", MODULE, ".start(crc__start)", ".start(1'b0)"),
    "the CRC is of other words": ("Only a load", MODULE, ".data(i__payload[31:0])", ".data(i__payload[32:1])"),
}


def loader(verilog):
    """Return the obligations of the small loader and of its CRC."""
    sites = catalogue.sites(LOADER, MODULE, modules_of(verilog))
    return [obligation for part, site in sites for obligation in catalogue.of_component(part, site)]


def test_a_crc_emits_its_kinds():
    sites = {site.path: part for part, site in catalogue.sites(LOADER, MODULE, modules_of(emitted(LOADER)))}
    assert sites["crc"] == ChecksumUnit(32)
    assert {(crc.path, crc.kind) for crc in loader(emitted(LOADER))} == {
        ("", "tokens"), ("", "wires"), ("", "reset"), ("crc", "checksum"), ("crc", "reset"),
    }  # fmt: skip
    _, obligations = engine(SMALL)
    assert [obligation.kind for obligation in obligations[CRC]] == ["checksum", "checksum", "reset"]


@needs_icarus
@pytest.mark.parametrize("word_bits", [32, 64])
def test_the_definition_is_that_of_zlib(word_bits, tmp_path):
    words = [random.Random(word_bits).getrandbits(word_bits) for _ in range(50)]
    steps = [f'state = after(state, {word_bits}\'h{word:x}); $display("%08x", ~state);' for word in words]
    lines = ["module top;", *crc_function(word_bits), "reg [31:0] state;", "initial begin", "state = 32'hffffffff;"]
    (tmp_path / "top.v").write_text("\n".join([*lines, *steps, "end", "endmodule"]), encoding="utf-8")
    subprocess.run(["iverilog", "-g2012", "-o", "top", "top.v"], cwd=tmp_path, check=True)
    told = subprocess.run(["vvp", "-n", "top"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    packed = [struct.pack("<Q", word)[: word_bits // 8] for word in words]
    assert told.split() == [f"{zlib.crc32(b''.join(packed[: count + 1])):08x}" for count in range(50)]


def test_sums_modulo_2_are_the_functions():
    rng = random.Random(0)
    for _ in range(200):
        cone = Cone()
        literals = [cone.variable() for _ in range(4)]
        variables = [literal >> 1 for literal in literals]
        for _ in range(12):
            one, other = (rng.choice(literals) ^ rng.getrandbits(1) for _ in range(2))
            literals.append(cone.both(cone.both(one, other) ^ 1, cone.both(one ^ 1, other ^ 1) ^ 1))
            literals.append(cone.both(rng.choice(literals), rng.choice(literals) ^ 1))
        terms = parity(cone, literals[-1])
        assert terms is not None
        for row in range(16):
            values = {0: 0} | {node: row >> index & 1 for index, node in enumerate(variables)}
            for node, operands in enumerate(cone.operands):
                if operands is not None:
                    values[node] = min(values[part >> 1] ^ part & 1 for part in operands)
            ones = sum(1 << node for node in variables if values[node])
            assert sum(term & ones == term for term in terms) % 2 == values[literals[-1] >> 1] ^ literals[-1] & 1


def test_too_many_products_are_undecided(monkeypatch):
    monkeypatch.setattr("hwgen.prove.methods.parity.MAX_TERMS", 100)
    cone = Cone()
    literal = cone.variable()
    for _ in range(8):
        literal = cone.both(literal ^ 1, cone.variable() ^ 1)
    assert parity(cone, literal) is None


@pytest.mark.parametrize("name", marked(LOADS, "a bit of a word is left out"))
def test_faults_in_loads_are_refuted(name):
    statement, module, old, new = LOADS[name]
    verilog = with_fault(emitted(LOADER), module, old, new)
    affected = [obligation for obligation in loader(verilog) if obligation.statement.startswith(statement)]
    assert "refuted" in {proof.verdict.result for proof in proved(affected, verilog).values()}


@pytest.mark.long
def test_checksums_are_proved():
    verilog, obligations = engine(SMALL)
    proofs = proved(obligations[CRC], verilog) | proved(loader(emitted(LOADER)), emitted(LOADER))
    assert {name: proof.verdict for name, proof in proofs.items() if proof.verdict.result != "proved"} == {}
