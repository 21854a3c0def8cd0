"""Sections of report.html that other verbs add: simulations, accuracy, synthesis, and fronts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
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
from hwgen.report.page import checks, exploration, html
from hwgen.simulate.check import compare
from hwgen.tools.synthesis import ComponentRow, Synthesis

DIGITS = Path("examples/digits")


@pytest.fixture(scope="module")
def digits() -> hwgen.Design:
    return hwgen.load(str(DIGITS / "digits.onnx")).plan("zedboard", dsp=60, multipliers="dsp")


def words(page: bytes) -> str:
    return " ".join(" ".join(Elements(page.decode()).words).split())


def test_verification(digits: hwgen.Design):
    good = result(np.zeros((3, 10), np.uint8)).document()
    page = html.render({**digits.document(), **good})
    check_page(page, PLANNED | {"verification"})
    assert "Every one of 30 output values equals the golden model" in words(page)
    assert "Latency 7 cycles; predicted 7; interval 3; predicted 3" in words(page)
    late = result(np.zeros((3, 10), np.uint8), latency=8).document()["verification"]
    assert not late["ok"]
    assert late["cycles_text"].endswith("not as predicted")


def test_firstdifference(digits: hwgen.Design):
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
    page = html.render({**digits.document(), **bad})
    check_page(page, PLANNED | {"verification"})
    assert "2 values differ; the cross marks the first" in words(page)


def test_accuracy(digits: hwgen.Design):
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
    page = html.render({**digits.document(), **document})
    check_page(page, PLANNED | {"verification", "accuracy"})
    assert f"{found['right']} of 200 frames" in words(page)


def test_confusions_of_many_classes():
    outputs = np.eye(100, dtype=np.float32)[[5, 5, 5, 7]]
    found = checks.accuracy(outputs, outputs, np.array([5, 6, 6, 7]))
    assert (found["right"], found["confusion"], found["pairs"]) == (2, None, [(6, 5, 2)])


@pytest.mark.parametrize(
    ("outputs", "labels", "message"),
    [
        (np.zeros((3, 4)), np.zeros(2, int), r"labels must be 3 integers, one a frame, not int64 of shape \(2,\)"),
        (np.zeros((3, 4)), np.zeros(3), r"labels must be 3 integers, one a frame, not float64 of shape \(3,\)"),
        (np.zeros((3, 4)), np.array([0, 1, 4]), r"labels must be 0 to 3, not 0 to 4"),
        ({"a": np.zeros(3), "b": np.zeros(3)}, np.zeros(3, int), r"labels go with a model of one output, not of 2"),
    ],
)
def test_labels_that_do_not_fit(outputs, labels, message):
    with pytest.raises(InputError, match=f"^{message}$"):
        checks.predicted_classes(outputs, labels)


def test_labels_are_checked_first(tmp_path, capsys):
    np.save(tmp_path / "labels.npy", np.zeros(7, int))
    given = ["--input", str(DIGITS / "images.npy"), "--labels", str(tmp_path / "labels.npy")]
    assert main(["simulate", str(DIGITS / "digits.onnx"), "--board", "zedboard", *given]) == 2
    assert "labels must be 450 integers, one a frame, not int64 of shape (7,)" in capsys.readouterr().err


def test_labels_that_are_not_there(capsys):
    """They are called labels, as calibration data are called so."""
    given = ["simulate", str(DIGITS / "digits.onnx"), "--board", "zedboard", "--random", "2"]
    for option in ("labels", "calibration"):
        assert main([*given, f"--{option}", "no.npy"]) == 2
        assert capsys.readouterr().err == f"hwgen: {option} no.npy can't be read: No such file or directory\n"


def test_synthesis(digits: hwgen.Design):
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
    page = html.render({**digits.document(), "synthesis": document})
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


def test_fronts_of_a_plan_join_its_page(tmp_path, digits: hwgen.Design):
    """Those of another plan take its place."""
    page, plan, model = tmp_path / "page.html", tmp_path / "plan.json", str(DIGITS / "digits.onnx")
    page.write_bytes(digits.page())
    plan.write_text(digits.to_json())
    given = ["--plan", str(plan), "--report", str(page)]
    assert main(["explore", model, "--board", "zedboard", *given]) == 0
    found = check_page(page.read_bytes(), PLANNED | {"fronts"})
    assert (found["title"], found["fronts"]["chosen"]) == ("digits on zedboard", str(plan))
    assert html.merged(digits.document(), page)["fronts"] == found["fronts"]
    plan.write_text(digits.to_json().replace(": ", " : "))
    assert main(["explore", model, *given]) == 0
    assert check_page(page.read_bytes(), {"fronts"})["title"] == "digits: what may be traded for what"
    assert set(html.merged(digits.document(), page)) == set(digits.document())


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
    assert "--plan is marked in the page that --report writes, which is not given" in capsys.readouterr().err
    page = tmp_path / "page.html"
    page.write_bytes(html.render({"title": "another's", "fronts": None}))
    assert main(["explore", "vgg19", "--first", "3", "--report", str(page)]) == 0
    check_page(page.read_bytes(), {"fronts"})
