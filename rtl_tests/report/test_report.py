"""``report.html``: its sections, also those that other verbs add, and its figures beside the plan's."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from chains import conv
from chains import pool as max_pool
from report_pages import PLANNED, Elements, a_plan, check_page, result

import hwgen
from hwgen.api.result import difference
from hwgen.cli.main import main
from hwgen.errors import InputError
from hwgen.explore import published
from hwgen.explore.fronts import explore
from hwgen.gateware.cost import Resources
from hwgen.gateware.engine.config import EngineConfig
from hwgen.gateware.engine.engine import EngineDesign
from hwgen.network import shapes
from hwgen.network.graph import Network
from hwgen.report.page import checks, exploration, html
from hwgen.simulate.check import compare
from hwgen.tools.synthesis import ComponentRow, Synthesis

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
    """Written by build, with its digest in the manifest; made anew with the model and without."""
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
        (["nowhere"], "folder nowhere does not exist: give one that 'hwgen build' wrote"),
        (["."], "report.html can't be read (No such file or directory): give MODEL as well to recompute it"),
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
    with pytest.raises(InputError, match=r"page is not a report of this version of hwgen: build the design again"):
        html.read((tmp_path / "report.html").read_text(), "page")


def test_random_view_shares(digits: hwgen.Design):
    """The bytes of a bin's states add up to all of it, but for rounding."""
    import base64

    for view in digits.document()["times"]["views"]:
        for layer in view["layers"]:
            shares = [np.frombuffer(base64.b64decode(state["shares"]), np.uint8) for state in layer["states"]]
            assert np.abs(np.sum(shares, axis=0, dtype=int) - 255).max() <= len(shares)


DIGITS_FOLDER = Path("examples/digits")


@pytest.fixture(scope="module")
def digits_model() -> hwgen.Design:
    return hwgen.load(str(DIGITS_FOLDER / "digits.onnx")).plan("zedboard", dsp=60, multipliers="dsp")


def words(page: bytes) -> str:
    return " ".join(" ".join(Elements(page.decode()).words).split())


def test_verification(digits_model: hwgen.Design):
    good = result(np.zeros((3, 10), np.uint8)).document()
    page = html.render({**digits_model.document(), **good})
    check_page(page, PLANNED | {"verification"})
    assert "Every one of 30 output values equals the golden model" in words(page)
    assert "Latency 7 cycles; predicted 7; interval 3; predicted 3" in words(page)
    late = result(np.zeros((3, 10), np.uint8), latency=8).document()["verification"]
    assert not late["ok"]
    assert late["cycles_text"].endswith("not as predicted")


def test_firstdifference(digits_model: hwgen.Design):
    """The channel in which it is, of both; of a large map the part around it."""
    rng = np.random.default_rng(1)
    wanted = rng.integers(0, 200, (2, 3, 5, 400)).astype(np.uint8)
    seen = wanted.copy()
    seen[1, 2, 3, 350:352] += 7
    found = compare(seen, wanted, layer="conv2")
    assert found is not None
    drawn = difference(found)
    assert drawn is not None
    value = int(seen[1, 2, 3, 350])
    assert drawn["text"] == f"layer conv2, frame 1, channel 2, row 3, column 350: {value}, expected {value - 7}"
    top, left = drawn["begin"]
    assert top == 0
    assert len(drawn["wanted"][0]) == checks.MAX_SIDE
    assert (drawn["row"], drawn["column"], drawn["differ"]) == (3, 350, 2)
    np.testing.assert_array_equal(drawn["seen"], seen[1, 2, :, left : left + checks.MAX_SIDE])
    np.testing.assert_array_equal(drawn["wanted"], wanted[1, 2, :, left : left + checks.MAX_SIDE])
    bad = result(np.zeros((3, 10), np.uint8), mismatches=2, first_mismatch=str(found), difference=drawn).document()
    page = html.render({**digits_model.document(), **bad})
    check_page(page, PLANNED | {"verification"})
    assert "2 values differ; the cross marks the first" in words(page)


def test_accuracy(digits_model: hwgen.Design):
    """scikit-learn counts the confusions."""
    from sklearn.metrics import confusion_matrix

    rng = np.random.default_rng(2)
    outputs, expected = rng.random((2, 200, 10)).astype(np.float32)
    labels = rng.integers(0, 10, 200)
    found = checks.accuracy(outputs, expected, labels)
    assert found["confusion"] == confusion_matrix(labels, outputs.argmax(axis=1)).tolist()
    assert found["right"] == np.trace(found["confusion"])
    assert found["golden"] == (expected.argmax(axis=1) == labels).sum()
    document = result(outputs).document(labels)
    page = html.render({**digits_model.document(), **document})
    check_page(page, PLANNED | {"verification", "accuracy"})
    assert f"{found['right']} of 200 frames" in words(page)


def test_confusions_of_many_classes():
    outputs = np.eye(100, dtype=np.float32)[[5, 5, 5, 7]]
    found = checks.accuracy(outputs, outputs, np.array([5, 6, 6, 7]))
    assert (found["right"], found["confusion"], found["pairs"]) == (2, None, [(6, 5, 2)])


@pytest.mark.parametrize(
    ("outputs", "labels", "message"),
    [
        (np.zeros((3, 4)), np.zeros(2, int), r"labels must be 3 integers, one per frame, not int64 of shape \(2,\)"),
        (np.zeros((3, 4)), np.zeros(3), r"labels must be 3 integers, one per frame, not float64 of shape \(3,\)"),
        (np.zeros((3, 4)), np.array([0, 1, 4]), r"labels must be 0 to 3, not 0 to 4"),
        (
            {"a": np.zeros(3), "b": np.zeros(3)},
            np.zeros(3, int),
            r"labels need a model with one output, not 2: leave them out",
        ),
    ],
)
def test_labels_that_do_not_fit(outputs, labels, message):
    with pytest.raises(InputError, match=f"^{message}$"):
        checks.predicted_classes(outputs, labels)


def test_labels_are_checked_first(tmp_path, capsys):
    np.save(tmp_path / "labels.npy", np.zeros(7, int))
    given = ["--input", str(DIGITS_FOLDER / "images.npy"), "--labels", str(tmp_path / "labels.npy")]
    assert main(["simulate", str(DIGITS_FOLDER / "digits.onnx"), "--board", "zedboard", *given]) == 2
    assert "labels must be 450 integers, one per frame, not int64 of shape (7,)" in capsys.readouterr().err


def test_labels_that_are_not_there(capsys):
    """They are called labels, as calibration data are called so."""
    given = ["simulate", str(DIGITS_FOLDER / "digits.onnx"), "--board", "zedboard", "--random", "2"]
    for option in ("labels", "calibration"):
        assert main([*given, f"--{option}", "no.npy"]) == 2
        assert capsys.readouterr().err == f"hwgen: {option} no.npy can't be read: No such file or directory\n"


def test_synthesis(digits_model: hwgen.Design):
    rows = (
        ComponentRow(
            layer="conv1", component="compute", estimate=Resources(lut=90), measured=Resources(dsp=7, lut=100)
        ),
        ComponentRow(
            layer="conv1", component="fifo", estimate=Resources(lut=20, ff=5), measured=Resources(lut=22, ff=5)
        ),
        ComponentRow(layer="fc", component="compute", estimate=Resources(ff=9), measured=Resources(bram36=0.5, ff=8)),
    )
    document = Synthesis(rows).document()
    assert document["layers"] == [
        {"name": "conv1", "dsp": 7, "bram36": 0, "lut": 122, "ff": 5},
        {"name": "fc", "dsp": 0, "bram36": 0.5, "lut": 0, "ff": 8},
    ]
    assert document["total"]["estimate"] == {"dsp": 0, "bram36": 0, "lut": 110, "ff": 14}
    titles = EngineDesign(engine=EngineConfig()).titles
    of_engine = [
        ComponentRow(layer="engine", component=name, estimate=Resources(), measured=Resources(), title=titles[name])
        for name in ("maps", "array")
    ]
    assert [part["name"] for part in Synthesis(tuple(of_engine)).document()["layers"]] == ["map buffer", "array"]
    page = html.render({**digits_model.document(), "synthesis": document})
    check_page(page, PLANNED | {"synthesis"})
    assert "conv1.fifo" in words(page)


@pytest.fixture(scope="module")
def vgg():
    return shapes.graph("vgg19").first(11)


def test_fronts(vgg):
    """The thesis's point C, all layers fused (docs/figures/published.md), is where a plan with that group is marked."""
    names = [layer.name for layer in vgg.layers]
    whole = exploration.chosen(a_plan(names), "plan.json", vgg)
    found = explore(vgg, hwgen.boards.load("vc709"), published=published.points(vgg))
    document = exploration.document(found, whole)
    check_page(html.render({"title": "fronts", "fronts": document}), {"fronts"})
    storage, _, _, cycles = document["fronts"]
    (last,) = [point for point in storage["published"] if point["text"].startswith("C ")]
    assert storage["chosen"]["y"] == pytest.approx(last["y"], rel=2e-3)  # 1.37 MB, as printed
    assert storage["chosen"] == {key: storage["points"][-1][key] for key in ("x", "y")}
    assert (cycles["chosen"]["x"], cycles["chosen"]["y"]) == (50, 9)
    alone = exploration.chosen(a_plan(*([name] for name in names)), "plan.json", vgg)
    assert exploration.document(found, alone)["fronts"][0]["chosen"]["y"] > storage["chosen"]["y"]
    assert all(len(front["points"]) for front in document["fronts"])


def test_fronts_of_a_plan_join_its_page(tmp_path, digits_model: hwgen.Design):
    """Those of another plan take its place."""
    page, plan, model = tmp_path / "page.html", tmp_path / "plan.json", str(DIGITS_FOLDER / "digits.onnx")
    page.write_bytes(digits_model.page())
    plan.write_text(digits_model.to_json())
    given = ["--plan", str(plan), "--report", str(page)]
    assert main(["explore", model, "--board", "zedboard", *given]) == 0
    found = check_page(page.read_bytes(), PLANNED | {"fronts"})
    assert (found["title"], found["fronts"]["chosen"]) == ("digits on zedboard", str(plan))
    assert html.merged(digits_model.document(), page)["fronts"] == found["fronts"]
    plan.write_text(digits_model.to_json().replace(": ", " : "))
    assert main(["explore", model, *given]) == 0
    assert check_page(page.read_bytes(), {"fronts"})["title"] == "digits: Pareto fronts"
    assert set(html.merged(digits_model.document(), page)) == set(digits_model.document())


def test_plans_that_fronts_can_not_take(vgg, tmp_path, capsys):
    with pytest.raises(InputError, match=r"^plan p is of other layers than the 11 of vgg19$"):
        exploration.chosen(a_plan(["conv1_1"]), "p", vgg)
    for text, message in (
        ("{", "^plan p is not JSON: .* in line 1; give a plan"),
        ("[]", "^plan p must be an object, not an array; give a plan"),
        ('{"groups": 3}', "^plan p: groups must be an array, not 3; give a plan"),
    ):
        with pytest.raises(InputError, match=message):
            exploration.chosen(text, "p", vgg)
    assert main(["explore", "vgg19", "--first", "3", "--plan", "p"]) == 2
    assert "--plan is marked in the page of --report: give --report as well" in capsys.readouterr().err
    page = tmp_path / "page.html"
    page.write_bytes(html.render({"title": "another's", "fronts": None}))
    assert main(["explore", "vgg19", "--first", "3", "--report", str(page)]) == 0
    check_page(page.read_bytes(), {"fronts"})
