"""Proofs of an engine's memory side, and faults seeded in its Verilog that they must refute."""

from __future__ import annotations

import shutil

import pytest
from programs import SMALL, behind
from proofs import engine, proved, with_fault

from hwgen.obligations.modules import modules_of

pytestmark = pytest.mark.skipif(not shutil.which("berkeley-abc"), reason="needs berkeley-abc")

#: Kinds of obligations of each component of the memory side, by its path.
KINDS = {
    "": {"wires", "logic"},
    ".port": {"bus", "path", "contract"},
    ".port.reads": {"tokens"},
    ".port.writes": {"tokens"},
    ".fetch": {"stream", "path", "bus", "occupancy", "tokens", "wires"},
    **{f".fetch.{name}_queue": {"stream", "path", "tokens"} for name in ("load", "compute", "drain", "store")},
    ".load": {"stream", "path", "bus", "contract"},
    ".load.bursts": {"stream", "path", "bus", "tokens"},
    ".store": {"stream", "path", "bus", "wires", "tokens"},
    ".store.bursts": {"stream", "path", "bus", "tokens"},
    ".store.granted": {"tokens"},
    ".store.words": {"tokens"},
}
#: Path of the component, kind of obligation that a fault refutes, text of the Verilog, and faulty text.
FAULTS = {
    "port: fetches as stores": (
        "",
        "wires",
        ".fetch__valid(fetch__request__valid)",
        ".fetch__valid(store__request__valid)",
    ),
    "port: loads too long": ("", "wires", ".load__valid(load__request__valid)", ".load__valid(port__load__ready)"),
    "port: an address is withdrawn": (".port", "bus", "end else if (m_axi__arready) begin", "end else begin"),
    "port: an address changes": (
        ".port",
        "bus",
        "if (reads__w_en) begin\n            m_axi__araddr",
        "if (1'b1) begin\n            m_axi__araddr",
    ),
    "port: a burst is too long": (".port", "bus", "granted_request[36:29] - 8'd1", "granted_request[36:29]"),
    "port: one read too many": (
        ".port",
        "bus",
        "has_read_room <= reads__level",
        "has_read_room <= 1'b1 | reads__level",
    ),
    "port: idle too early": (".port", "bus", "assign idle = !reads__r_rdy & ", "assign idle = "),
    "port: waits for ready": (".port", "path", "endmodule", "    assign m_axi__arvalid = m_axi__arready;\nendmodule"),
    "port: writes by ready": (
        ".port",
        "path",
        "endmodule",
        "    assign m_axi__awlen = {8{m_axi__awready}};\nendmodule",
    ),
    "port: each word is a first one": (".port", "contract", "is_first_word <= m_axi__rlast", "is_first_word <= 1'b1"),
    "port: no word is the last one": (".port", "contract", " | m_axi__rlast", ""),
    "queue: a word is lost": (
        ".port.reads",
        "tokens",
        "if (w_rdy_and_w_en) begin",
        "if (w_rdy_and_w_en & (level != 6'd3)) begin",
    ),
    "queue: a word is kept": (
        ".port.reads",
        "tokens",
        "if (r_rdy_and_r_en) begin",
        "if (r_rdy_and_r_en & (level != 6'd1)) begin",
    ),
    "fetch: a request is withdrawn": (
        ".fetch",
        "stream",
        "assign request__valid = ",
        "assign request__valid = !program_base[0] & ",
    ),
    "fetch: a request changes": (".fetch", "stream", "* 9'd1, bursts__o__payload[28:0]", "* 9'd1, program_base[28:0]"),
    "fetch: a request waits for ready": (
        ".fetch",
        "path",
        "assign request__valid = ",
        "assign request__valid = request__ready & ",
    ),
    "fetch: an address by ready": (
        ".fetch",
        "path",
        "assign request__payload = {",
        "assign request__payload = {38{request__ready}} & {",
    ),
    "fetch: a burst is too long": (
        ".fetch",
        "bus",
        "{bursts__o__payload[37:29] * 9'd1",
        "{bursts__o__payload[37:29] * 9'd2",
    ),
    "fetch: a burst has no end": (".fetch", "bus", "{bursts__o__payload[37:29] * 9'd1", "{9'd300"),
    "fetch: words come without room": (".fetch", "occupancy", "bursts__o__valid & has_room", "bursts__o__valid"),
    "fetch: a queue is forgotten": (".fetch", "occupancy", "has_room = &{store_queue__room, ", "has_room = &{"),
    "fetch: jobs overlap": (
        ".fetch",
        "tokens",
        "bursts__i__payload__address + 29'd18",
        "bursts__i__payload__address + 29'd17",
    ),
    "fetch: the end is missed": (".fetch", "tokens", "is_program_end <= word__payload[0]", "is_program_end <= 1'b0"),
    "fetch: a word is at another position": (
        ".fetch",
        "tokens",
        "word__valid & (word_index == 5'd9)",
        "word__valid & (word_index == 5'd8)",
    ),
    "fetch: a job is not counted": (
        ".fetch",
        "tokens",
        "jobs <= jobs + 24'd1",
        "jobs <= jobs + {23'd0, word__payload[1]}",
    ),
    "fetch: a unit has the part of another": (".fetch", "wires", ".o__ready(drain__ready)", ".o__ready(store__ready)"),
    "fetch: a part is always offered": (".fetch", "wires", ".o__valid(load__valid)", ".o__valid()"),
    "parts: an offer is withdrawn": (
        ".fetch.load_queue",
        "stream",
        "end else if (o__ready) begin\n            o__valid",
        "end else begin\n            o__valid",
    ),
    "parts: an offer changes": (
        ".fetch.load_queue",
        "stream",
        "if (pop) begin\n            o__payload",
        "if (1'b1) begin\n            o__payload",
    ),
    "parts: wait for ready": (
        ".fetch.load_queue",
        "path",
        "endmodule",
        "    always @* o__valid = o__ready;\nendmodule",
    ),
    "parts: change by ready": (
        ".fetch.load_queue",
        "path",
        "endmodule",
        "    always @* o__payload = {384{o__ready}};\nendmodule",
    ),
    "parts: one is left out": (
        ".fetch.load_queue",
        "tokens",
        "read__addr <= read__addr + 1'b1",
        "read__addr <= read__addr",
    ),
    "parts: room comes too early": (".fetch.load_queue", "tokens", "room <= level != 2'd1", "room <= level != 2'd2"),
    "load: a request is withdrawn": (".load", "stream", "end else if (request__ready) begin", "end else begin"),
    "load: a box changes": (
        ".load",
        "stream",
        "assign bursts__i__payload[28:0] = both_3",
        "assign bursts__i__payload[28:0] = bursts__o__valid",
    ),
    "load: waits for ready": (".load", "path", "endmodule", "    assign request__valid = request__ready;\nendmodule"),
    "load: requests by ready": (
        ".load",
        "path",
        "endmodule",
        "    assign request__payload = {62{request__ready}};\nendmodule",
    ),
    "load: nothing is awaited": (".load", "contract", "(part__payload[37:14] <= computed)", "1'b1"),
    "load: a job is awaited too briefly": (
        ".load",
        "contract",
        "(part__payload[61:38] <= stored)",
        "(part__payload[61:38] <= stored + 24'd1)",
    ),
    "load: a burst is too long": (".load", "bus", "bursts__o__payload[37:29]", "(bursts__o__payload[37:29] + 9'd1)"),
    "load: a burst is shifted": (".load", "bus", "<= bursts__o__payload[28:0]", "<= bursts__o__payload[28:0] + 29'd1"),
    "bursts: an offer is withdrawn": (
        ".store.bursts",
        "stream",
        "if (o__ready) begin\n                    fsm_state <= 2'd1;",
        "begin\n                    fsm_state <= 2'd1;",
    ),
    "bursts: an offer changes": (
        ".store.bursts",
        "stream",
        "if (o__ready) begin\n                    if (",
        "begin\n                    if (",
    ),
    "bursts: wait for ready": (".store.bursts", "path", "assign o__valid = ", "assign o__valid = o__ready & "),
    "bursts: mark by ready": (".store.bursts", "path", "{&end_flags,", "{o__ready,"),
    "bursts: cross a boundary": (".store.bursts", "bus", "9'd256 - ", "9'd257 - "),
    "bursts: fit too early": (
        ".store.bursts",
        "bus",
        "words_left <= {15'd0, words_to_boundary}",
        "words_left <= {15'd0, words_to_boundary} + 24'd1",
    ),
    "bursts: skip a row": (".store.bursts", "tokens", "rows_left == 16'd1", "rows_left <= 16'd2"),
    "bursts: end too early": (".store.bursts", "tokens", "{&end_flags,", "{&end_flags[1:0],"),
    "store: a request is withdrawn": (
        ".store",
        "stream",
        "assign request__valid = has_request & ",
        "assign request__valid = has_request & (free_beats != 4'd0) & ",
    ),
    "store: a request changes": (".store", "stream", "conditions_met & !has_request", "conditions_met"),
    "store: waits for ready": (
        ".store",
        "path",
        "assign request__valid = ",
        "assign request__valid = request__ready & ",
    ),
    "store: offers by ready": (".store", "path", "endmodule", "    assign written__valid = written__ready;\nendmodule"),
    "store: a burst is too long": (
        ".store",
        "bus",
        "<= bursts__o__payload[37:29]",
        "<= bursts__o__payload[37:29] + 9'd1",
    ),
    "store: a burst is shifted": (
        ".store",
        "bus",
        "<= bursts__o__payload[28:0]",
        "<= bursts__o__payload[28:0] + 29'd1",
    ),
    "store: words pass their FIFO": (".store", "wires", ".r_rdy(written__valid)", ".r_rdy(written__ready)"),
    "store: words are not taken": (".store", "wires", ".r_en(written__ready)", ".r_en(1'b1)"),
    "store: the last beat is marked early": (".store", "tokens", "reads_left == 9'd1", "reads_left == 9'd2"),
    "store: a beat is left out": (".store", "tokens", "(reads_left_is_1 & read_enable)", "reads_left_is_1"),
    "store: the FIFO overflows": (".store", "tokens", "free_beats <= 4'd8", "free_beats <= 4'd9"),
}


def memory_side(config):
    """Return the Verilog of an engine, and the obligations of its ports and units by their path in the memory side."""
    verilog, found = engine(config)
    paths = {path: path.removeprefix("memory_side") for path in found if path.startswith("memory_side")}
    return verilog, {short: found[path] for path, short in paths.items() if not short.startswith(".check")}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HWGEN_CACHE", str(tmp_path / "cache"))


def test_each_component_emits_its_kinds():
    _, found = memory_side(SMALL)
    kinds = {path: {obligation.kind for obligation in each} - {"reset"} for path, each in found.items()}
    assert kinds == KINDS


def test_each_kind_of_each_component_has_two_faults():
    same = {".port.writes": ".port.reads", ".store.granted": ".port.reads", ".store.words": ".port.reads"}
    same[".load.bursts"] = ".store.bursts"
    same |= {f".fetch.{name}_queue": ".fetch.load_queue" for name in ("compute", "drain", "store")}
    for path, kinds in KINDS.items():
        for kind in kinds - ({"logic"} if path == "" else set()):  # see test_engine_wires.py
            guards = [name for name, fault in FAULTS.items() if fault[:2] == (same.get(path, path), kind)]
            assert len(guards) >= 2, (path, kind)


@pytest.mark.long
@pytest.mark.parametrize("name", FAULTS, ids=lambda name: name.replace(": ", "-").replace(" ", "-"))
def test_faults_are_refuted(name):
    path, kind, old, new = FAULTS[name]
    sound, found = memory_side(SMALL)
    affected = [obligation for obligation in found[path] if obligation.kind == kind]
    verilog = with_fault(sound, affected[0].module, old, new)
    assert "refuted" in {proof.verdict.result for proof in proved(affected, verilog).values()}


@pytest.mark.long
@pytest.mark.parametrize("bus_bytes", [4, 8, 16])
def test_the_memory_side_is_proved(bus_bytes):
    verilog, found = memory_side(behind(bus_bytes))
    proofs = proved([obligation for each in found.values() for obligation in each], verilog)
    assert {name: proof.verdict for name, proof in proofs.items() if proof.verdict.result != "proved"} == {}
    assert modules_of(verilog)["engine"].instances["memory_side"] == "engine_memory_side"
