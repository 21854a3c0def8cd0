"""``hwgen block``: what it writes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from chains import PEEMEN
from papers import schedules

from hwgen.blocking import yang
from hwgen.blocking.problem import Problem
from hwgen.cli import block as block_cli
from hwgen.cli import main as cli
from hwgen.report.blocking import EnergyReport


def block(*arguments: str) -> int:
    return cli.main(["block", *arguments])


LENET = ["conv1", "pool1", "conv2", "pool2", "fc1", "fc2", "fc3"]


def written(folder: Path, *arguments: str) -> dict:
    target = folder / "result.json"
    assert block(*arguments, "--json", str(target)) == 0
    return json.loads(target.read_text())


def test_peemen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = written(tmp_path, "--paper", "peemen")["columns"]
    assert [column["memory"] for column in columns] == list(PEEMEN)
    for column in columns:
        words = PEEMEN[column["memory"]]
        tile, direction, printed, room = schedules.TABLE[column["memory"]]
        assert tuple(column["tile"].items()) == tuple(zip("rqmnkl", tile, strict=True))
        assert (column["set"], column["direction"]) == (room, direction)
        assert column["accesses_per_iteration"] == sum(words[1:]) / 866_384_000
        assert f"{column['accesses_per_iteration']:.3f}" == printed
    assert "0.013837" in capsys.readouterr().out


def test_cecconi(tmp_path: Path) -> None:
    result = written(tmp_path, "--paper", "cecconi")
    assert [layer["name"] for layer in result["layers"]][:4] == ["conv1", "conv2", "conv3", "conv3_1"]
    assert result["total_words"] == sum(layer["words"] for layer in result["layers"]) <= 79_300_000
    assert all(layer["room"] <= 32_768 for layer in result["layers"])
    assert f"{sum(layer['printed_words'] for layer in result['layers']) / 1e6:.1f}" == "110.5"
    assert f"{sum(layer['printed_tile_words'] for layer in result['layers']) / 1e6:.1f}" == "113.4"


@pytest.mark.long
def test_diannao(tmp_path: Path) -> None:
    layers = written(tmp_path, "--paper", "diannao")["layers"]
    assert [f"{layer['pj_per_mac']:.3f}" for layer in layers] == ["10.305", "25.601", "9.273", "6.940", "7.445"]
    assert layers[0]["pj_per_mac_split"] <= 5.851
    assert layers[1]["pj_per_mac_split"] <= 5.989
    assert layers[3]["blocking"].startswith("C0=16 K0=16 ")


def test_memories(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layer = written(tmp_path, "14x14x32->32", "k3", "--memory", "4KB,1MB")["layers"][0]
    assert layer["name"] == "14x14x32->32 k3"
    assert layer["dram_accesses"] == {"input": 14 * 14 * 32, "weights": 32 * 32 * 9, "output": 14 * 14 * 32}
    inside = sum(buffer["bytes"] for buffer in layer["buffers"] if buffer["memory"] == "4KB")
    assert 0 < inside <= 4096
    assert "1MB" in capsys.readouterr().out
    given = written(tmp_path, "14x14x32->32 k3", "--memory", "4KB,1MB", "--blocking", layer["blocking"])["layers"][0]
    assert given["pj_per_mac"] >= layer["pj_per_mac"] - 1e-9
    model = written(tmp_path, "lenet5", "--memory", "16KB")["layers"]
    assert [layer["name"] for layer in model] == LENET


@pytest.mark.long
def test_blocks_that_do_not_divide(tmp_path: Path) -> None:
    given = ("27x27x32->32 k5", "--memory", "1KB")
    even, ragged = (written(tmp_path, *given, *more)["layers"][0] for more in ((), ("--ragged",)))
    assert ragged["pj_per_mac"] < 0.8 * even["pj_per_mac"]
    assert ragged["pj_per_mac_bound"] > 0.95 * ragged["pj_per_mac"]
    designed = written(tmp_path, given[0], "--memory", "64KB", "--levels", "2", "--ragged")["layers"][0]
    assert sum(buffer["bytes"] for buffer in designed["buffers"]) <= 64 << 10


@pytest.mark.long
def test_designed_memories(tmp_path: Path) -> None:
    two, three = (
        written(tmp_path, "14x14x32->32 k3", "--memory", "64KB", "--levels", str(levels))["layers"][0]
        for levels in (2, 3)
    )
    assert three["pj_per_mac"] <= two["pj_per_mac"]
    assert sum(buffer["bytes"] for buffer in three["buffers"]) <= 64 << 10
    home = written(tmp_path, "14x14x32->32 k3", "--memory", "64KB", "--levels", "3", "--homed")["layers"][0]
    assert home["pj_per_mac"] < three["pj_per_mac"]
    common = written(tmp_path, "lenet5", "--memory", "64KB", "--levels", "2", "--common")["layers"]
    assert [layer["name"] for layer in common] == LENET


def test_arrays_at_home_are_in_the_sum(tmp_path: Path) -> None:
    size = "28x28x32->32 k3"
    layer = written(tmp_path, size, "--memory", "64KB", "--levels", "3", "--homed")["layers"][0]
    spent = sum(buffer["accesses"] * buffer["pj"] for buffer in layer["buffers"])
    spent += 320 * sum(layer["dram_accesses"].values())
    home = sum(entry["accesses"] * entry["pj"] for entry in layer["homes"].values())
    assert home > 0
    assert spent + home == pytest.approx(layer["pj_per_mac"] * layer["macs"])


def test_a_picture_of_arrays_at_home_is_as_high_as_the_energy() -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    found = yang.codesign(Problem.parse("28x28x32->32 k3"), 64 << 10, levels=3, homed=True)
    axes = figure.subplots()
    EnergyReport(name="a", blockings=[found])._draw_energies(axes)
    assert sum(bar.get_height() for bar in axes.patches) == pytest.approx(found.per_mac)
    assert any("home" in text.get_text() for text in axes.get_legend().get_texts())


def test_padded_channels_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layer = written(tmp_path, "28x28x32->32 k3 g32", "--memory", "32KB")["layers"][0]
    assert (layer["macs"], layer["macs_padded"]) == (28 * 28 * 9 * 32, 28 * 28 * 9 * 32 * 16 * 16)
    assert "57,802,752 multiply-adds instead of 225,792" in capsys.readouterr().out
    even = written(tmp_path, "28x28x32->32 k3", "--memory", "32KB")["layers"][0]
    assert even["macs"] == even["macs_padded"] == 28 * 28 * 9 * 32 * 32
    assert "instead of" not in capsys.readouterr().out


def test_a_given_blocking_has_no_bound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ("14x14x32->32 k3", "--memory", "16KB", "--blocking", "C0=16 K0=16 Fw Fh X Y C K")
    assert written(tmp_path, *given)["layers"][0]["pj_per_mac_bound"] is None
    told = capsys.readouterr().out
    assert "this blocking" in told.splitlines()[0]
    assert "least" not in told
    assert "100.00%" not in told


def test_the_common_hierarchy_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = written(tmp_path, "lenet5", "--memory", "64KB", "--levels", "2", "--common")
    memories = [memory for own in result["hierarchy"].values() for memory in own]
    assert sum(memory["bytes"] for memory in memories) == result["bytes"] <= 64 << 10
    alone = written(tmp_path, "lenet5", "--memory", "64KB", "--levels", "2")["layers"]
    energies = {
        name: sum(layer["pj_per_mac"] * layer["macs_padded"] for layer in layers)
        for name, layers in (("common", result["layers"]), ("alone", alone))
    }
    assert 0 <= 1 - energies["alone"] / energies["common"] <= result["gap"] + 1e-9
    told = capsys.readouterr().out
    assert "left out" not in told
    assert "all layers: " in told


def test_several_cores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ("14x14x32->32 k3", "--memory", "64KB", "--levels", "2", "--cores", "4")
    layer = written(tmp_path, *given)["layers"][0]
    assert [(way["shared"], way["cores"]) for way in layer["cores"]] == [
        (shared, cores) for shared in ("input", "weights") for cores in (1, 2, 4)
    ]
    total = layer["pj_per_mac"] * layer["macs"]
    assert [sum(way["pj"].values()) for way in layer["cores"] if way["cores"] == 1] == pytest.approx([total] * 2)
    dram = 320 * sum(layer["dram_accesses"].values())
    assert all(way["pj"]["dram"] == dram for way in layer["cores"])
    rows = [line.split()[2:4] for line in capsys.readouterr().out.splitlines()]
    assert ["input", "4"] in rows
    assert ["weights", "4"] in rows
    assert block(*given[:-1], "3") == 2
    assert "3 cores can't share" in capsys.readouterr().err


def test_cores_of_a_model_whose_layers_can_not_all_be_parted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layers = written(tmp_path, "lenet5", "--memory", "64KB", "--levels", "2", "--cores", "2")["layers"]
    ways = {layer["name"]: [(way["shared"], way["cores"]) for way in layer["cores"]] for layer in layers}
    assert ways["conv1"] == [("input", 1), ("input", 2), ("weights", 1), ("weights", 2)]
    assert ways["fc1"] == [("input", 1), ("input", 2), ("weights", 1)]  # of one pixel
    assert ways["pool1"] == []
    assert "left out: fc1: 2 cores can't share weights" in capsys.readouterr().out


def test_pools_are_left_out_of_diannao_aloud(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layers = written(tmp_path, "lenet5", "--paper", "diannao")["layers"]
    assert [layer["name"] for layer in layers] == [name for name in LENET if "pool" not in name]
    assert "left out: pool1, a layer without weights" in capsys.readouterr().out


def test_a_pool_alone_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(block_cli, "problems", lambda _: [schedules.OTHERS["Pool"]])
    assert block("pool.onnx", "--paper", "diannao") == 2
    assert "needs a layer with weights: pool.onnx has none" in capsys.readouterr().err


def test_board(tmp_path: Path) -> None:
    result = written(tmp_path, "vgg16:7@64x64", "--board", "zedboard")
    assert result["limit_words"] == 140 * 36_864 // 2 // 8
    for layer in result["layers"]:
        assert layer["room"] <= result["limit_words"]
        assert layer["compulsory"] <= layer["words"]
        assert 0 < layer["double_buffered_s"] <= layer["in_turn_s"]
    wide = written(tmp_path, "vgg16:7@64x64", "--board", "zedboard", "--bits", "32")
    assert wide["limit_words"] == result["limit_words"] // 4
    assert wide["total_words"] >= result["total_words"]


def test_costs_of_transfers_from_a_board_file(tmp_path: Path) -> None:
    from hwgen.boards import Board

    if not hasattr(Board, "dma_call_ns"):
        pytest.skip("boards of another checkout")
    text = 'device = "D"\npart = "p"\nlut = 1000\nff = 1000\ndsp = 100\nbram36 = 10\nclock_mhz = 100\nmemory_gb_s = 1\n'
    calls = []
    for name, more in (("free", ""), ("costly", "dma_call_ns = 20000\ndma_jump_ns = 100\n")):
        board = tmp_path / f"{name}.toml"
        board.write_text(f'{text}description = "mine"\n{more}')
        calls.append(sum(layer["jumps"] for layer in written(tmp_path, "flownets", "--board", str(board))["layers"]))
    assert calls[1] < calls[0]


@pytest.mark.long
@pytest.mark.parametrize(
    "arguments",
    [
        ("--paper", "peemen"),
        ("--paper", "cecconi"),
        ("14x14x32->32 k3", "--memory", "64KB", "--levels", "2"),
    ],
    ids=lambda arguments: arguments[1],
)
def test_plots(arguments: tuple[str, ...], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pictures = []
    for _ in range(2):
        assert block(*arguments, "--plot", str(tmp_path / "picture.svg")) == 0
        pictures.append((tmp_path / "picture.svg").read_bytes())
    assert pictures[0] == pictures[1]
    assert b"</svg>" in pictures[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("9" * 5000 + "x1x1->1", "--memory", "32KB"), "must look like 56x56x128->256"),
        (("56x56x128->256 k3", "--memory", "9" * 400 + "B"), "must be at most 1048576 MB"),
    ],
)
def test_numbers_of_many_digits(arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert block(*arguments) == 2
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1
