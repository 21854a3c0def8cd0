"""What is kept so that it is not made twice: found by content, whole or not at all, and never too much."""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from needs import needs_icarus
from onnx import TensorProto, helper, numpy_helper

import hwgen
from hwgen import cache, digest, processes
from hwgen.cli.main import main
from hwgen.errors import ToolError
from hwgen.gateware.circuit_forms import Part
from hwgen.gateware.weights import Weights
from hwgen.network.ops import Conv
from hwgen.plan import kept as kept_plans
from hwgen.plan import planner
from hwgen.simulate.verilator import without_contents
from hwgen.verilog import convert, emitted, parts
from hwgen.verilog import kept as kept_verilog

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits" / "digits.onnx"
KEY, OTHER = "0" * 32, "1" * 32


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A cache of each test's own."""
    monkeypatch.setenv("HWGEN_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept"


# Digests


class Colour(Enum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True)
class Shade:
    colour: Colour
    parts: tuple = ()


DIFFERENT = [
    *(None, 0, 1, True, 1.0, "1", b"1", (), (1,), (1, 1), ((1,), 1), [1], ("1",), "", b"", 1 + 0j, -1, (-1, 1), (-11,)),
    *(np.arange(4), np.arange(4, dtype=np.int8), np.arange(4).reshape(2, 2), np.int64(1), np.float32(1)),
    *(Colour.RED, Colour.BLUE, Shade(Colour.RED), Shade(Colour.BLUE), Shade(Colour.RED, (1,)), Shade),
    *({"a": 1}, {"b": 1}, {1, 2}, {1, 3}, frozenset({1, 2}), os.path.join, os.path.split, Path("a"), Path("b")),
    *(Weights([1, 2]), Weights([2, 1])),
]


def test_what_differs_has_another_digest():
    assert len({digest.of(value) for value in DIFFERENT}) == len(DIFFERENT)


def test_equal_values_have_one_digest():
    def values():
        return {"ab": (1, 2)}, {"x", "y", "z"}, np.arange(6)[::2], Weights([3, 4]), Shade(Colour.RED, ("a" * 2,))

    assert digest.of(values()) == digest.of(values())
    assert digest.of({"z", "y", "x"}) == digest.of({"x", "y", "z"})
    assert digest.of(np.arange(6)[::2]) == digest.of(np.array([0, 2, 4]))


def test_what_can_not_be_looked_into_is_refused():
    for value in (object(), lambda: 0, [iter(())]):
        with pytest.raises(TypeError, match=r"nobody knows what a .* consists of"):
            digest.of(value)


@pytest.mark.long
def test_processes_agree():
    """On the sources, and on a plan's hardware: whatever the seed of Python's hashes is."""
    program = (
        f"import hwgen; from hwgen import digest; design = hwgen.load({str(DIGITS)!r}).plan(board='zedboard')\n"
        "print(digest.source(), digest.of(design.config), digest.of({'x', 'y', 'z'}))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1


# Entries


def test_entries_are_found_whole_or_not_at_all(place):
    assert cache.find("plans", KEY) is None
    cache.keep_files("plans", KEY, {"a": b"apple", "b": b"pear"})
    found = cache.find("plans", KEY)
    assert found == place / "plans" / KEY
    assert (found / "a").read_bytes() == b"apple"
    assert cache.find("plans", OTHER) is None
    for broken in (b"appl", b"apply", b""):
        (found / "a").write_bytes(broken)
        assert cache.find("plans", KEY) is None
        cache.keep_files("plans", KEY, {"a": b"apple"})
        assert cache.find("plans", KEY) == found
    (found / "a").write_bytes(b"appl?")
    assert cache.find("plans", KEY, sums=False) == found
    (found / "a").write_bytes(b"appl")
    assert cache.find("plans", KEY, sums=False) is None
    (found / "a").unlink()
    assert cache.find("plans", KEY) is None
    cache.keep_files("plans", KEY, {"a": b"apple"})
    for listed in ("", "[]", "{"):
        (found / "entry.json").write_text(listed)
        assert cache.find("plans", KEY) is None
    assert [path.name for path in (place / "plans").iterdir()] == [KEY]


def test_the_first_of_two_stays(place):
    cache.keep_files("plans", KEY, {"a": b"apple"})
    cache.keep_files("plans", KEY, {"a": b"pear"})
    assert (place / "plans" / KEY / "a").read_bytes() == b"apple"
    assert [path.name for path in (place / "plans").iterdir()] == [KEY]


def test_files_are_moved(place, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"x")
    file.chmod(0o755)
    assert cache.keep("simulators", KEY, [file]) == place / "simulators" / KEY
    assert not file.exists()
    assert os.access(place / "simulators" / KEY / "file", os.X_OK)


def test_what_is_oldest_goes_first(place, monkeypatch):
    monkeypatch.setenv("HWGEN_CACHE_LIMIT", "1")
    monkeypatch.setattr(cache, "GRACE", 1 << 40)  # all of them were just used
    names = [f"{number:032x}" for number in range(4)]
    for age, name in enumerate(names[:3]):
        cache.keep_files("plans", name, {"a": bytes(400_000)})
        os.utime(place / "plans" / name / "entry.json", (0, 1000 - age))
    cache.keep_files("plans", names[3], {"a": bytes(400_000)})
    assert len(cache.entries()) == 4
    monkeypatch.setattr(cache, "GRACE", 600.0)
    now = time.time()
    os.utime(place / "plans" / names[3] / "entry.json", (now - 100, now - 100))
    assert cache.find("plans", names[2])  # which makes it one that was used after the last
    cache.keep_files("verilog", KEY, {"a": b""})
    assert [entry.path.name for entry in cache.entries()] == [names[3], names[2], KEY]


def test_unfinished_work_of_dead_processes_goes(place):
    """What nobody has locked goes at once, at the start; what can't be locked when it is old."""
    simulators = place / "simulators"
    dead, old, new = (simulators / f".build-{1:0{digits}x}" for digits in (24, 16, 17))
    for folder in (dead, old, new):
        folder.mkdir(parents=True)
    os.utime(old, (0, time.time() - 2 * cache.STALE))
    with processes.folder(".build-", simulators) as alive:
        assert cache.find("plans", KEY) is None
        assert (dead.exists(), old.exists(), new.exists(), alive.exists()) == (False, True, True, True)
        cache.keep_files("plans", KEY, {})
        assert (old.exists(), new.exists(), alive.exists()) == (False, True, True)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_killed_process_leaves_nothing(place):
    """Neither a program at work nor, once another one starts, the folder that it worked in."""
    script = (
        "import sys; from hwgen import cache, processes\n"
        f"with cache.locked('simulators', {KEY!r}), processes.workplace(cache.folder() / 'simulators') as work:\n"
        "    (work / 'design.v').write_text('module')\n"
        "    processes.call(['sh', '-c', 'sleep 300 & echo $! > pid.part && mv pid.part pid; wait'], work)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": str(ROOT)}) as process:
        wait_until(lambda: list(place.glob("simulators/.build-*/pid")))
        (written,) = place.glob("simulators/.build-*/pid")
        sleeper = Path("/proc") / written.read_text().strip()
        assert sleeper.exists()
        process.kill()
    wait_until(lambda: not sleeper.exists() or "(zombie)" in (sleeper / "status").read_text())
    assert written.exists()
    program = [sys.executable, "-c", f"from hwgen import cache; cache.find('plans', {KEY!r})"]
    subprocess.run(program, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
    assert not written.parent.exists()


def wait_until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_cache_that_others_own_or_can_write_is_refused(place, monkeypatch, capfd):
    cache.keep_files("simulators", KEY, {"simulator": b"a program"})
    for path in (place, place / "simulators"):
        path.chmod(0o777)
        with pytest.raises(ToolError) as refusal:
            cache.find("simulators", KEY)
        assert str(refusal.value) == (
            f"the cache {place} is not used, because other users can write in {path} (mode 777; chmod go-w): hwgen "
            "runs programs from its cache; set HWGEN_CACHE to a folder of your own, or remove this one"
        )
        with pytest.raises(ToolError, match="can write in"):
            cache.keep_files("plans", KEY, {})
        path.chmod(0o700)
    assert cache.find("simulators", KEY) is not None
    with monkeypatch.context() as patch:
        owner = os.geteuid()
        patch.setattr(os, "geteuid", lambda: owner + 1)
        with pytest.raises(ToolError, match=rf"because another user \({owner}\) owns {place}: hwgen runs programs"):
            cache.find("simulators", KEY)
        assert main(["plan", str(DIGITS), "--board", "zedboard"]) == 2
    said = capfd.readouterr().err
    assert said.startswith("hwgen: the cache ")
    assert said.count("\n") == 1


def test_an_entry_that_others_can_write_is_made_anew(place):
    """Whatever the umask is, what is kept is the user's alone."""
    before = os.umask(0)
    try:
        cache.keep_files("simulators", KEY, {"simulator": b"a program"})
    finally:
        os.umask(before)
    entry = place / "simulators" / KEY
    for path in (place, place / "simulators", entry, *entry.iterdir()):
        assert path.stat().st_mode & 0o022 == 0
    for path in (entry, *entry.iterdir()):
        path.chmod(0o777)
        assert cache.find("simulators", KEY) is None
        cache.keep_files("simulators", KEY, {"simulator": b"a program"})
        assert cache.find("simulators", KEY) == entry


@pytest.mark.long
def test_a_planted_plan_is_a_plan_at_most(place, tmp_path, monkeypatch):
    """What a kept plan says is read as JSON, with all checks of a plan that is given; what is none is planned anew."""
    monkeypatch.setattr(kept_plans, "MIN_SECONDS", 0)
    model = hwgen.load(DIGITS)
    first = model.plan(board="zedboard").to_json()
    (entry,) = (place / "plans").iterdir()
    kept = json.loads((entry / "kept.json").read_text())

    class Command:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "owned"),)

    other = re.sub(r'"depth": \d+', '"depth": 0', kept["plan"])
    assert other != kept["plan"]
    planted = [pickle.dumps(Command()), b"[]", b"{", b"[" * 100_000, b'{"plan": 3, "notes": []}', b'{"plan": "{}"}']
    planted += [json.dumps({**kept, **change}).encode() for change in ({"notes": [1]}, {"notes": 1}, {"plan": other})]
    for text in planted:
        for name in ("kept.json", "plan.pickle"):
            (entry / name).write_bytes(text)
        files = [path for path in entry.iterdir() if path.name != "entry.json"]
        (entry / "entry.json").write_text(json.dumps({path.name: cache._digest(path) for path in files}))
        assert model.plan(board="zedboard").to_json() == first
    assert not (tmp_path / "owned").exists()


def test_nothing_that_is_kept_is_a_pickle():
    """Pickles are written and read by workers and their pool alone, over pipes that nobody else has."""
    users = {
        path.relative_to(ROOT / "hwgen") for path in (ROOT / "hwgen").rglob("*.py") if "pickle.load" in path.read_text()
    }
    assert {str(path) for path in users} == {"work/base.py", "work/cluster.py", "work/pool.py", "work/worker.py"}


def test_one_at_a_time(place, tmp_path):
    """Of four processes that want an entry one makes it, though all ask before it is there."""
    program = (
        "import sys, time; from pathlib import Path; from hwgen import cache\n"
        f"with cache.locked('plans', {KEY!r}):\n"
        f"    if cache.find('plans', {KEY!r}) is None:\n"
        "        time.sleep(0.3)\n"
        f"        cache.keep_files('plans', {KEY!r}, {{'by': sys.argv[1].encode()}})\n"
        "        print('made')\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program]
    running = [
        subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE, env=environment) for number in range(4)
    ]
    said = [process.communicate(timeout=60)[0] for process in running]
    assert [process.returncode for process in running] == [0] * 4
    assert said.count(b"made\n") == 1
    assert [path.name for path in (place / "plans").iterdir()] == [KEY]


def test_a_cache_that_can_not_be_written_is_no_harm_where_it_only_saves_time(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HWGEN_CACHE", str(tmp_path / "file" / "cache"))
    cache.keep_files("plans", KEY, {"a": b"apple"})
    assert cache.find("plans", KEY) is None


def test_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HWGEN_CACHE", str(tmp_path))
    assert cache.folder() == tmp_path
    monkeypatch.delenv("HWGEN_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.folder() == tmp_path / "xdg" / "hwgen"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache.folder() == tmp_path / "home" / ".cache" / "hwgen"


# What is kept


def test_plans_are_kept(monkeypatch):
    monkeypatch.setattr(kept_plans, "MIN_SECONDS", 0)
    model = hwgen.load(DIGITS)
    first = model.plan(board="zedboard")
    with monkeypatch.context() as patch:
        patch.setattr(planner, "make", None)
        again = hwgen.load(DIGITS).plan(board="zedboard")
    assert again.to_json() == first.to_json()
    assert again.table() == first.table()
    assert again.config == first.config
    assert again.report() == first.report()
    assert again.plan.network is again.network
    assert all(layer in again.network.layers for group in again.plan.groups for layer in group.network.layers)
    made = []
    make = planner.make
    monkeypatch.setattr(planner, "make", lambda *args, **options: (made.append(options), make(*args, **options))[1])
    model.plan(board="zedboard", dsp=30, multipliers="dsp")
    model.plan(board="vc709")
    hwgen.Model(with_other_weights(model.network)).plan(board="zedboard")
    assert made == [{"dsp": 30, "multipliers": "dsp"}, {}, {}]


def with_other_weights(network):
    """The same network but for the signs of all weights."""
    layers = [replace(each, weights=-each.weights) if isinstance(each, Conv) else each for each in network.layers]
    return replace(network, layers=tuple(layers))


@pytest.mark.long
def test_verilog_is_kept(monkeypatch):
    monkeypatch.setattr(kept_verilog, "MIN_SECONDS", 0)
    config, said = hwgen.load(DIGITS).plan(board="zedboard").config, []
    first = emitted.files(config, say=said.append)
    assert said == ["writing the Verilog"]
    with monkeypatch.context() as patch:
        patch.setattr(emitted, "convert", None)
        again = emitted.files(config, say=said.append)
    assert again == first
    assert list(again) == list(first)
    assert len(said) == 1
    other = emitted.files(replace(config, name="other"), say=said.append)
    taps = emitted.files(config, taps=True, say=said.append)
    assert len(said) == 3
    assert len({next(iter(files.values())) for files in (first, other, taps)}) == 3


CHANGES = {
    "weight": ("w", lambda values: np.where(np.arange(values.size).reshape(values.shape) == 40, -90, values)),
    "bias": ("b", lambda values: values + np.array([0, 0, 700, 0])),
    "scale of a channel": ("w_scale", lambda values: values * np.array([1, 1.5, 1, 1])),
    "scale of the output": ("y_scale", lambda values: values / 2),
    "zero point": ("y_zero", lambda values: values + 9),
    "zero point of the input": ("x_zero", lambda values: values - 3),
}


def small_model(path: Path, **changes: Callable[[np.ndarray], np.ndarray]) -> onnx.ModelProto:
    """A quantised convolution of 3 to 4 channels, with some of its constants changed."""
    rng = np.random.default_rng(1)
    constants = {
        "x_scale": np.float32(0.02),
        "x_zero": np.uint8(120),
        "w": rng.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8),
        "w_scale": rng.uniform(0.001, 0.003, 4).astype(np.float32),
        "w_zero": np.zeros(4, np.int8),
        "y_scale": np.float32(0.05),
        "y_zero": np.uint8(100),
        "b": rng.integers(-500, 500, 4).astype(np.int32),
    }
    for name, change in changes.items():
        constants[name] = change(constants[name]).astype(constants[name].dtype)
    node = helper.make_node("QLinearConv", ["x", *constants], ["y"], name="conv", pads=[1, 1, 1, 1])
    maps = [
        helper.make_tensor_value_info(name, TensorProto.UINT8, ["n", count, 7, 9])
        for name, count in (("x", 3), ("y", 4))
    ]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph([node], "small", maps[:1], maps[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, path)
    return model


def check_changes(folder: Path, monkeypatch: pytest.MonkeyPatch, simulator: str) -> None:
    """Each change of a constant changes what is simulated, whatever was kept of other constants before."""
    for module in (kept_plans, kept_verilog):
        monkeypatch.setattr(module, "MIN_SECONDS", 0)
    x = np.random.default_rng(2).integers(0, 256, (2, 3, 7, 9)).astype(np.uint8)
    seen = []
    for changes in ({}, *({name: change} for name, change in CHANGES.values()), {}):
        model = small_model(folder / "small.onnx", **changes)
        design = hwgen.load(folder / "small.onnx").plan(board="zedboard", dsp=20, multipliers="dsp", macs_per_dsp=2)
        result = design.simulate(x, simulator=simulator)
        assert result.ok
        expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
        np.testing.assert_array_equal(result.outputs, expected)
        seen.append(expected.tobytes())
    assert len(set(seen)) == len(CHANGES) + 1


@needs_icarus
def test_what_is_kept_is_never_of_other_constants(tmp_path, monkeypatch):
    check_changes(tmp_path, monkeypatch, "icarus")


@pytest.mark.long
def test_simulators_that_are_kept_are_never_of_other_constants(tmp_path, monkeypatch):
    check_changes(tmp_path, monkeypatch, "verilator")


@pytest.mark.parametrize("macs", [1, pytest.param(2, marks=pytest.mark.long)])
def test_parts_are_kept(tmp_path, monkeypatch, macs):
    """With another weight the chains are not written again, and the Verilog is what it is without a cache."""
    monkeypatch.setattr(kept_verilog, "MIN_SECONDS", 0)
    configs = []
    for changes in ({}, dict([CHANGES["weight"]])):
        small_model(tmp_path / "small.onnx", **changes)
        configs.append(
            hwgen.load(tmp_path / "small.onnx")
            .plan(board="zedboard", dsp=20, multipliers="dsp", macs_per_dsp=macs)
            .config
        )
    first = emitted.files(configs[0])
    made = []
    monkeypatch.setattr(parts, "_files", lambda *of, make=parts._files: (made.append(of), make(*of))[1])
    again = emitted.files(configs[1])
    assert not made
    monkeypatch.setenv("HWGEN_CACHE", str(tmp_path / "new"))
    assert emitted.files(configs[1]) == again != first
    assert len(made) == 1


class Doubled(Part[int]):
    """A part that is none of hwgen's own."""

    def __init__(self, width: int):
        super().__init__(width, {"a": In(width), "b": Out(width)})

    def circuit(self):
        m = Module()
        m.d.sync += self.b.eq(self.a << 1)
        return m


class Around(wiring.Component):
    def __init__(self):
        super().__init__({"a": In(8), "b": Out(8)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.twice = twice = Doubled(8)
        m.d.comb += [twice.a.eq(self.a), self.b.eq(twice.b)]
        return m


def test_parts_of_others_are_not_kept(place, monkeypatch):
    """Nobody knows whether their code changed."""
    monkeypatch.setattr(kept_verilog, "MIN_SECONDS", 0)
    (text,) = convert(Around(), "around").values()
    assert b"module around_twice (" in text
    assert not place.exists()
    monkeypatch.setattr(Doubled, "circuit", lambda self: with_memory(Module()))
    with pytest.raises(AssertionError, match="Doubled is not a part: it has memories"):
        convert(Around(), "around")


def with_memory(m: Module) -> Module:
    m.submodules.memory = words = Memory(shape=8, depth=4, init=[1, 2, 3])
    words.read_port()
    return m


@pytest.mark.long
def test_contents_of_memories_are_files_of_their_own():
    """And what is left of the Verilog, which simulators are compiled of, is the same for other weights."""
    model = hwgen.load(DIGITS)
    plan = model.plan(board="zedboard", multipliers="dsp")
    files = {}
    for network in (model.network, with_other_weights(model.network)):
        config = hwgen.Model(network).plan(board="zedboard", plan=written(plan)).config
        files[network] = without_contents(emitted.files(config, top="top"), "top")
    ours, others = files.values()
    assert set(ours) == set(others)
    assert sum(ours[name] != others[name] for name in ours if name.endswith(".mem")) > 10
    text = ours["top.v"].decode()
    assert "initial begin" not in text
    assert set(re.findall(r'readmemh\("([^"]+)', text)) == {name for name in ours if "-" in name}
    assert len(ours) > 20


def written(design, place=None):
    place = Path(os.environ["HWGEN_CACHE"]).parent / "plan.json"
    place.write_text(design.to_json())
    return place


# The command line


def test_command_line(place, capsys):
    cache.keep_files("plans", KEY, {"a": bytes(1_500_000)})
    assert main(["cache"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{place}: 1.5 MB of at most {cache.LIMIT / 1e6:,.0f}"
    assert [line.split() for line in lines[1:]] == [
        ["plans", "1", "1.5", "MB"],
        *([kind, "0", "0.0", "MB"] for kind in ("verilog", "proofs", "simulators", "objects", "runtimes")),
    ]


def test_clearing_takes_away_what_is_kept_and_nothing_else(place, capsys):
    cache.keep_files("plans", KEY, {"a": bytes(1_500_000)})
    (place / "plans" / f".build-{1:016x}").mkdir()
    (place / "plans" / f".lock-{OTHER}").touch()
    for other in (place / "photographs" / KEY, place / "verilog" / "mine"):
        other.mkdir(parents=True)
        (other / "file").write_text("kept")
    assert main(["cache", "--clear"]) == 0
    assert capsys.readouterr().out == f"{place}: cleared, 1.5 MB\n"
    left = sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())
    assert left == [f"photographs/{KEY}/file", "verilog/mine/file"]
    assert not (place / "plans").exists()
    assert main(["cache", "--clear"]) == 0


def test_entries_say_what_their_files_must_be(place):
    cache.keep_files("plans", KEY, {"a": b"abc"})
    listed = json.loads((place / "plans" / KEY / "entry.json").read_text())
    # FIPS 180-2, appendix B.1
    assert listed == {"a": [3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"]}
