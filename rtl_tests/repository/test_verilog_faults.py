"""`bench/verilog_faults.py`: changes of emitted Verilog, who finds that they change behaviour, and what proofs say."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
from proofs import MODULE, emitted, of_component
from small_circuits import FIFO
from verilog_faults import Fault, Folder, behaviour, changes, judge, judged, summary

from hwgen.obligations import obligation
from hwgen.obligations.modules import VerilogModule

TEXT = """module part (
    input  wire clk,
    input  wire [3:0] a,
    output reg  [3:0] b = 4'd0
);

    wire big = !a[1] & (a > 4'd15);
    other inner (
        .clk(clk),
        .i(a),
        .o(b[2:1])
    );

`ifdef SYNTHESIS
    assign seen = a & b;
`endif
    always @(posedge clk) begin
        b <= big ? a : b;
    end
endmodule"""


def test_a_line_has_changes_of_each_kind():
    found = {(kind, number, new.strip()) for kind, number, _, new in changes(TEXT)}
    assert found == {
        ("negation", 6, "wire big = a[1] & (a > 4'd15);"),
        ("slice", 6, "wire big = !a[0] & (a > 4'd15);"),
        ("operator", 6, "wire big = !a[1] | (a > 4'd15);"),
        ("operator", 6, "wire big = !a[1] & (a >= 4'd15);"),
        ("constant", 6, "wire big = !a[1] & (a > 4'd0);"),
        ("port", 8, ".clk(a),"),
        ("port", 9, ".i(b[2:1]),"),
        ("slice", 10, ".o(b[1:0])"),
        ("operands", 17, "b <= big ? b : a;"),
        ("assignment", 17, ""),
    }


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return the folder of a FIFO, with its obligations of stable beats, as ``hwgen build`` writes them."""
    monkeypatch.setenv("HWGEN_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "fifo"
    path.mkdir()
    verilog = emitted(FIFO)
    found = [each for each in of_component(FIFO, verilog) if each.kind == "stream"]
    (path / f"{MODULE}.v").write_text(verilog)
    (path / f"{MODULE}.proofs.json").write_bytes(obligation.write(f"{MODULE}.v", found, {}))
    return Folder("fifo", path)


def fault(folder, old, new):
    lines = folder.modules[MODULE][1].text.splitlines()
    (number,) = (number for number, line in enumerate(lines) if old in line)
    return Fault("fifo", f"{MODULE}.v", MODULE, "test", number, lines[number], lines[number].replace(old, new))


@pytest.mark.skipif(not shutil.which("berkeley-abc"), reason="needs berkeley-abc")
@pytest.mark.parametrize(
    ("old", "new", "effect", "verdict"),
    [
        ("end else if (o__ready) begin", "end else begin", "miter", "refuted"),
        ("o__valid <= 1'b1;", "o__valid <= 1'b1 | pop;", "none", "named"),
        # That a beat is stored says no obligation of this folder, and so the FIFO is named.
        ("if (i__valid) storage", "if (i__valid & pop) storage", "miter", "named"),
    ],
)
def test_a_fault_is_judged(folder, tmp_path, old, new, effect, verdict):
    drawn = fault(folder, old, new)
    target = tmp_path / "changed"
    target.mkdir()
    folder.copy_with(drawn, target)
    assert behaviour(folder, drawn, target) == effect
    assert judged(folder, drawn, target, 60)["verdict"] == verdict
    assert judge(folder, drawn, 60)["behaviour"] == effect


def test_a_module_that_only_synthesis_reads_has_obligations_as_well(folder):
    """Obligations of products in LUTs are of the text for synthesis, whose adders have their text for simulation."""
    texts = {
        "top": "    sums inner (\n        .i(i)\n    );\n",
        "sums": "",
        "sums_synthesis": "    adder one (\n        .i(i)\n    );\n",
        "adder": "",
    }
    modules = {name: VerilogModule(name, f"module {name} ();\n{text}endmodule") for name, text in texts.items()}
    folder.lists = [replace(folder.lists[0], modules=modules)]
    assert folder.with_module("adder") == {"adder", "sums", "top"}


def test_draws_are_repeatable(folder):
    assert folder.drawn(7, 3) == folder.drawn(7, 3)
    assert len({folder.drawn(7, index) for index in range(8)}) > 1


def test_the_summary_counts_only_faults_with_an_effect():
    entry = {"design": "fifo", "behaviour": "bench", "verdict": "refuted"}
    text = summary([entry, entry | {"verdict": "proved"}, entry | {"behaviour": "none", "verdict": ""}])
    assert text.endswith("1 of 2 faults that change behaviour are refuted, refused or named")
