"""``report.html``: its sections, its figures beside the plan's, and that it is one whole and valid file."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from chains import conv
from chains import pool as max_pool
from report_pages import PLANNED, Elements, check_page

import hwgen
from hwgen.cli.main import main
from hwgen.errors import InputError
from hwgen.network.graph import Network
from hwgen.report.page import html

DIGITS = "examples/digits/digits.onnx"
PAGE = Path(html.__file__).parent


def check_times(times: dict) -> None:
    """The cycles of each layer add up to those of the drawing; no FIFO holds more than its depth."""
    assert times["views"]
    for view in times["views"]:
        for layer in view["layers"]:
            assert sum(state["cycles"] for state in layer["states"]) == view["edges"][-1] - view["edges"][0]
        for fifo, plan in zip(view["fifos"], times["fifos"], strict=True):
            assert fifo["name"] == plan["name"]
            assert max(fifo["most"]) <= plan["most"] <= plan["depth"]


@pytest.fixture(scope="module")
def digits() -> hwgen.Design:
    return hwgen.load(DIGITS).plan("zedboard", dsp=60, multipliers="dsp")


def test_page_of_a_plan(digits: hwgen.Design):
    document = check_page(digits.page(), PLANNED)
    assert document == json.loads(json.dumps(digits.document() | {"format": 2}))
    times = document["times"]
    check_times(times)
    frame, steady = times["views"]
    assert frame["edges"][-1] == digits.latency + 1
    assert steady["edges"][-1] - steady["edges"][0] == digits.interval
    assert all(fifo["most"] == fifo["depth"] and fifo["why"] == "full at some time" for fifo in times["fifos"])
    design = document["design"]
    assert [row[0] for row in design["tables"][0]["groups"][0]["rows"]] == [layer.name for layer in digits.plan.layers]
    layers = design["resources"]["layers"]
    for name, used in digits.resources.items():
        assert sum(layer[name] for layer in layers) == used
    (moved,) = design["traffic"]
    assert moved["moved"] == {"feature maps": 74, "weights": 0}  # 1 x 8 x 8 in, 10 out
    (whole,) = [point for point in design["roofline"]["points"] if point["kind"] == "group"]
    macs = 4_608 + 73_728 + 73_728 + 1_280  # 72 x 64, 1,152 x 64, 4,608 x 16, 1,280 x 1
    assert (whole["macs"], whole["bytes"]) == (macs, 74)
    assert whole["rate"] == pytest.approx(macs / digits.interval * 0.1)  # GMAC/s at 100 MHz
    # From the first input to the last output, the latency apart.
    assert f"(cycles 0 to {digits.latency:,})".encode() in digits.page()


def test_the_roof_counts_products_in_luts():
    """Of the network in README.md, by the unroll factors that its table shows."""
    line = hwgen.load(DIGITS).plan("zedboard").document()["design"]["roofline"]
    products = 1 * 4 * 9 + 8 * 16 * 9 + 2 * 16 * 9 * 2 + 2 * 5
    assert line["used"] == pytest.approx(0.1 * products)  # at 100 MHz
    assert line["peak"] >= line["used"]


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("digits", {"multipliers": "lut"}),
        ("digits", {"multipliers": "dsp"}),
        ("mobilenetv1-0.25@32x32", {}),
        ("lenet5", {"template": "engine", "cores": 1, "array": (8, 13), "lut_pixels": 4}),
    ],
)
def test_no_plan_is_above_its_roof(model: str, options: dict):
    """Neither where LUTs multiply, nor where layers are depthwise, nor on an engine."""
    source = DIGITS if model == "digits" else model
    line = hwgen.load(source).plan("zedboard", **options).document()["design"]["roofline"]
    assert max(point["rate"] for point in line["points"]) <= line["used"] * (1 + 1e-9) <= line["peak"] * (1 + 2e-9)


@pytest.mark.long
def test_drawing_of_groups_in_turn():
    """Edges between groups, where a copy stands in front of the second one or not, are those of the network."""
    network = hwgen.load("resnet8@8x8")
    design = network.plan("vc709", groups="conv-stack1_add,stack2_conv1-dense")
    document = design.document()
    drawing = document["design"]["network"]
    names = {node["id"]: node["name"] for node in drawing["nodes"]}
    edges = {(names[edge["from"]], names[edge["to"]]) for edge in drawing["edges"]}
    copies = {name for name in names.values() if name not in {layer.name for layer in network.network.layers}}
    for layer, taken in zip(network.network.layers, network.network.edges, strict=True):
        for edge in taken:
            source = edge or network.network.input_names[0]
            assert (source, layer.name) in edges or any(
                (source, c) in edges and (c, layer.name) in edges for c in copies
            )
    check_times(document["times"])
    (view,) = document["times"]["views"]
    assert view["edges"][-1] == design.plan.placement.predict(1).latency + 1
    check_page(html.render(document), PLANNED)


def test_scripts_of_others_are_as_they_were_published():
    """The SHA-256 of each is that of the file in the package that LICENSES.md names."""
    licences = (PAGE / "LICENSES.md").read_text(encoding="utf-8")
    scripts = sorted(PAGE.glob("*.min.js"))
    assert scripts
    for script in scripts:
        section = licences.partition(f"## {script.name}\n")[2].partition("\n## ")[0]
        assert f"SHA-256: `{hashlib.sha256(script.read_bytes()).hexdigest()}`" in section


def test_hostile_names():
    """Names of a model are text, wherever they stand."""
    bad = "</script><img src=x onerror=alert(1)>&\"'<!--"
    layers = (conv(bad, 3, 4, 8, padding=1), max_pool("pool", 4, 8))
    model = hwgen.Model(Network(name=bad, layers=layers))
    page = model.plan("zedboard").page()
    check_page(page, PLANNED)
    assert bad in "".join(Elements(page.decode()).words)
    before, _, behind = model.plan("zedboard").report().split("```")
    assert "&lt;img" in before
    assert "<" not in before + behind


@pytest.mark.long
def test_folder(tmp_path: Path, capsys: pytest.CaptureFixture):
    """Written by build, with its digest in the manifest; made anew with the model and without.

    With all LUTs the planner has nothing to note, and notes are no part of plan.json.
    """
    hwgen.load(DIGITS).plan("zedboard", lut=53_200).build(tmp_path)
    page = tmp_path / "report.html"
    first = page.read_bytes()
    assert check_page(first, PLANNED)["title"] == "digits on zedboard"
    assert "report.html" in json.loads((tmp_path / "manifest.json").read_text())["files"]
    assert main(["report", str(tmp_path)]) == 0
    assert page.read_bytes() == first
    page.unlink()
    assert main(["report", str(tmp_path), DIGITS]) == 0
    assert page.read_bytes() == first
    assert "Timeline" in capsys.readouterr().out


def test_sections_of_one_design_stay(tmp_path: Path, digits: hwgen.Design):
    """What another command found of the same plan and weights stays in the page; of others it goes."""
    page = tmp_path / "page.html"
    document = digits.document()
    page.write_bytes(html.render({**document, "synthesis": None, "extra": 1}))
    assert html.merged(document, page)["extra"] == 1
    assert "extra" not in html.merged({**document, "of": "another"}, page)
    page.write_text("<p>not ours</p>")
    assert html.merged(document, page) == document


def test_digest_knows_weights(digits: hwgen.Design):
    network = digits.network
    first = next(layer for layer in network.layers if layer.weight_count)
    before = html.digest("plan", network)
    weights = first.weights  # type: ignore[attr-defined]
    old = weights.flat[0]
    weights.setflags(write=True)
    weights.flat[0] = old + 1 if old < 0 else old - 1
    after = html.digest("plan", network)
    weights.flat[0] = old
    assert before != after
    assert html.digest("plan", network) == before
    assert html.digest("plan 2", network) != before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "folder nowhere is not there: give one that 'hwgen build' wrote"),
        (["."], "report.html can't be read (No such file or directory): give the MODEL too, and it is made anew"),
        ([".", DIGITS], "plan.json can't be read (No such file or directory): give a folder that 'hwgen build' wrote"),
    ],
)
def test_errors(tmp_path, monkeypatch, capsys, arguments, message):
    model = Path(DIGITS).resolve()
    monkeypatch.chdir(tmp_path)
    assert main(["report", *(str(model) if word == DIGITS else word for word in arguments)]) == 2
    assert capsys.readouterr().err == f"hwgen: {message}\n"


def test_not_a_page(tmp_path):
    (tmp_path / "report.html").write_text("<p>mine</p>")
    with pytest.raises(InputError, match=r"page is not a report of this version of hwgen: write it anew"):
        html.read((tmp_path / "report.html").read_text(), "page")


def test_random_view_shares(digits: hwgen.Design):
    """The bytes of a bin's states add up to all of it, but for rounding."""
    import base64

    for view in digits.document()["times"]["views"]:
        for layer in view["layers"]:
            shares = [np.frombuffer(base64.b64decode(state["shares"]), np.uint8) for state in layer["states"]]
            assert np.abs(np.sum(shares, axis=0, dtype=int) - 255).max() <= len(shares)
