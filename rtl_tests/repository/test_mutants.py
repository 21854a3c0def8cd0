"""`bench/mutants.py` and `bench/verilog_faults.py`: what they change, and who finds it."""

import importlib.util
import json
import os
import time
from dataclasses import asdict, replace
from types import SimpleNamespace

import mutants as bench
import numpy as np
import pytest
from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from mutant_judges import Judges, forked, outer_functions, recorded_lines, seeds_faults
from mutant_miters import compared, written
from mutant_proofs import Built, _tasks, objection
from mutants import Judged, Record, mutants_of, survivors, table
from needs import needs_abc
from proofs import MODULE, emitted, of_component
from small_circuits import FIFO
from texts import read_text
from verilog_faults import Fault, Folder, behaviour, changes, judge, judged, summary

from hwgen import fields
from hwgen.obligations import obligation
from hwgen.obligations.modules import VerilogModule

SOURCE = '''\
class Counter:
    def elaborate(self, m, count, ready):
        """Adds statements to a domain."""
        m.d.sync += count.eq(count + 1)
        return count < 3 if ready & 1 else 0

    def limit(self, count):
        return count + 1
'''


def test_changes_of_a_circuit():
    mutants = [*mutants_of("counter.py", SOURCE)]
    assert sorted(mutant.change for mutant in mutants) == [
        "1 -> 0 in count + 1",
        "1 -> 2 in count + 1",
        "count < 3 -> count <= 3",
        "left out: m.d.sync += count.eq(count + 1)",
        "ready & 1 -> ready | 1",
    ]
    assert {mutant.line for mutant in mutants} == {4, 5}
    [left_out] = [mutant for mutant in mutants if mutant.change.startswith("left out")]
    assert left_out.source == SOURCE.replace("m.d.sync += count.eq(count + 1)", "pass")


def test_tests_that_execute_a_line_judge():
    mutant = next(mutant for mutant in mutants_of("counter.py", SOURCE) if mutant.line == 5)
    assert Record("passed", 1.0, {"counter.py": [4, 5]}).executes(mutant)
    assert not Record("failed", 1.0, {"counter.py": [4, 5]}).executes(mutant)
    assert not Record("passed", 1.0, {"counter.py": [4, 6], "other.py": [5]}).executes(mutant)


@pytest.fixture
def counter(tmp_path):
    path = tmp_path / "counter.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("counter", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_code_of_a_mutant_is_put_into_functions_that_exist(counter, tmp_path):
    judges = Judges(tmp_path, lambda judges: None)
    assert judges.pytest_runtestloop(SimpleNamespace(items=[]))
    limit = counter.Counter().limit
    judges.mutate("counter.py", SOURCE.replace("return count + 1", "return count + 2"))
    assert limit(5) == 7
    with pytest.raises(RuntimeError, match=r"no function of counter\.py is changed"):
        judges.mutate("counter.py", SOURCE.replace("return count + 1", "return count + 2"))


def test_outer_functions_are_methods_too():
    code = compile(SOURCE + "\ndef alone():\n    return lambda: 1\n", "counter.py", "exec")
    assert [function.co_qualname for function in outer_functions(code)] == [
        "Counter.elaborate",
        "Counter.limit",
        "alone",
    ]


def test_lines_of_the_sources_are_recorded(counter, tmp_path):
    lines = {}
    with recorded_lines(tmp_path, lines):
        counter.Counter().limit(1)
    assert lines == {"counter.py": {7, 8}}


def test_fork_answers_is_late_or_crashes():
    answer, seconds, is_late = forked(lambda: {"pid": os.getpid()}, 5)
    assert answer["pid"] != os.getpid()
    assert 0 <= seconds < 5
    assert not is_late
    assert forked(lambda: os._exit(3), 5)[::2] == (None, False)
    begin = time.process_time()
    assert forked(_loop, 0)[::2] == (None, True)
    assert time.process_time() - begin < 1


def _loop():
    while True:
        pass


def verdict(**changes):
    return replace(Judged("counter.py", 4, 8, "count < 3 -> count <= 3", "survived", "", 0, 0, 0.0), **changes)


def test_survivors_are_judged_at_their_lines_of_today(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bench, "ROOT", tmp_path)
    (tmp_path / bench.GATEWARE).mkdir(parents=True)
    (tmp_path / bench.GATEWARE / "counter.py").write_text("\n\n" + SOURCE)
    path = tmp_path / "verdicts.json"
    old = [
        verdict(line=5, column=15),
        verdict(column=15, change="count < 4 -> count <= 4"),
        verdict(column=15, verdict="refuted", test="a test"),
    ]
    path.write_text(json.dumps([asdict(entry) for entry in old]))
    assert [(mutant.line, mutant.change) for mutant in survivors(path)] == [(7, "count < 3 -> count <= 3")]
    assert capsys.readouterr().out == "no longer there: counter.py:4: count < 4 -> count <= 4\n"


def test_the_table_names_what_no_test_refutes():
    equal = verdict(verdict="equivalent", stage=2, miters={"Counter": "proved"})
    lines = table([verdict(verdict="refuted", test="test_counter"), equal, verdict(stage=2)]).splitlines()
    assert lines[2:5] == [
        "| a test of the default run fails | 1 |",
        "| equal by miters of Yosys and ABC, for the components of the first tests that execute the line | 1 |",
        "| survived | 1 |",
    ]
    assert [line.split(":")[0] for line in lines[6:]] == ["equivalent 0 of 0 tests, miters", "survived 0 of 0 tests"]


def test_tests_that_seed_faults_judge_nothing():
    def item(title, **params):
        return SimpleNamespace(name=title, callspec=SimpleNamespace(params=params))

    assert seeds_faults(item("test_faults_are_refuted[x]", name="x"))
    assert seeds_faults(item("test_resets[x]", fault="x"))
    assert not seeds_faults(item("test_resets[None]", fault=None))
    assert not seeds_faults(SimpleNamespace(name="test_words"))


class Passes(wiring.Component):
    """A stream that passes unchanged, with a faulty change where a beat is withdrawn, or is not offered."""

    def __init__(self, fault=""):
        self._fault = fault
        super().__init__({"i": In(stream.Signature(2)), "o": Out(stream.Signature(2))})

    def elaborate(self, platform):
        m = Module()
        waits = Signal()
        m.d.sync += waits.eq(self.i.valid & ~self.i.ready)
        m.d.comb += [self.o.valid.eq(self.i.valid), self.i.ready.eq(self.o.ready), self.o.payload.eq(self.i.payload)]
        if self._fault == "offers what was withdrawn":
            m.d.comb += self.o.valid.eq(self.i.valid | waits)
        elif self._fault == "zeros between beats":
            m.d.comb += self.o.payload.eq(self.i.payload & self.i.valid.replicate(2))
        elif self._fault == "waits":
            m.d.comb += self.o.valid.eq(self.i.valid & ~waits)
        return m


@needs_abc
@pytest.mark.parametrize(
    ("fault", "result"),
    [
        ("", "same text"),
        ("offers what was withdrawn", "proved"),
        ("zeros between beats", "proved"),
        ("waits", "differs in cycle 1"),
    ],
)
def test_miters_keep_the_rules_of_streams(fault, result):
    """No source withdraws a beat, and a payload counts only while it is valid."""
    assert compared(written(Passes(), "gold"), written(Passes(fault), "gate"), 20) == result


def test_files_with_contents_of_memories_are_read():
    """Obligations of a table in block RAM depend on its file; without it, none is left out in silence."""
    from proofs import of_component

    from hwgen.gateware.channel_table import ChannelTableConfig
    from hwgen.gateware.join import JoinConfig
    from hwgen.gateware.stream import BeatFormat
    from hwgen.gateware.weights import Weights
    from hwgen.tools.synthesis import SideBySide
    from hwgen.verilog import convert

    beat = BeatFormat(channels=8, height=1, width=1, lanes=1, bits=8, signed=False)
    config = ChannelTableConfig(
        window=JoinConfig(inputs=(beat,), in_turn=True),
        tables=Weights((np.arange(8 * 256, dtype=np.intc) % 251).tobytes()),
        bits=8,
        signed=False,
    )
    files = convert(SideBySide([config.component()]), "top")
    verilog = files["top.v"].decode()
    obligations = [fields.written(obligation) for obligation in of_component(config, verilog)]
    contents = {name: content.decode() for name, content in files.items() if name.endswith(".mem")}
    assert len(contents) == 1
    tasks = _tasks(Built(verilog, obligations, contents))
    assert len(tasks) == len(obligations) == 2
    (name,) = contents
    other = _tasks(Built(verilog, obligations, {name: contents[name].replace("1", "2", 1)}))
    assert [key for key in tasks if tasks[key][0] != other[key][0]] == ["elementwise of top"]
    with pytest.raises(ValueError, match=r"file top\.part_0\.lane_0_table\.mem is missing"):
        _tasks(Built(verilog, obligations))


@needs_abc
def test_changed_obligations_are_proved(tmp_path, monkeypatch):
    """An obligation whose module is the same in both needs no proof; one that the change refutes objects."""
    from proofs import emitted, of_component
    from small_circuits import FIFO

    monkeypatch.setenv("HWGEN_CACHE", str(tmp_path))
    verilog = emitted(FIFO)
    streams = [obligation for obligation in of_component(FIFO, verilog) if obligation.kind == "stream"]
    obligations = [fields.written(obligation) for obligation in streams]
    sound = Built(verilog, obligations)
    assert objection(sound, sound, 60, time.monotonic() + 60) == ""
    changed = Built(verilog.replace("else if (o__ready) begin", "else begin"), obligations)
    assert changed != sound
    assert objection(sound, changed, 60, time.monotonic() - 1) == ""
    assert objection(sound, changed, 60, time.monotonic() + 60) == "stream of top"


TEXT = read_text("changed_part.v")


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


@needs_abc
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
