"""``report.html`` in a browser: nothing leaves it, hover and click do what they should, everybody can read it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from programs import ONE_CORE
from report_pages import MAX_BYTES, MEASURED, a_plan, result

import hwgen
from hwgen.api.result import difference
from hwgen.explore.fronts import explore
from hwgen.network import shapes
from hwgen.report.page import exploration, html, vivado
from hwgen.simulate.check import compare
from hwgen.templates.engine import engine_group
from hwgen.tools.synthesis import ComponentRow, Synthesis

sync_api = pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")

pytestmark = pytest.mark.long

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
#: Sizes of a desk's screen and of a phone's, in pixels.
DESK, PHONE = {"width": 1200, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("there is no chromium")
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def engine() -> hwgen.Design:
    return hwgen.load("resnet8@8x8").plan("zedboard", **ONE_CORE, bandwidth=0.8)


@pytest.fixture(scope="module")
def digits() -> hwgen.Design:
    return hwgen.load("examples/digits/digits.onnx").plan("zedboard", dsp=60, multipliers="dsp")


class Opened:
    """A page in a tab, with whatever went wrong there."""

    def __init__(self, browser: Any, path: Path, scheme: str = "light", size: dict[str, int] = DESK):
        self.page = browser.new_page(viewport=size, color_scheme=scheme, has_touch=size is PHONE)
        self.said: list[str] = []
        self.page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self._check(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector(".js-plotly-plot .main-svg")

    def _check(self, url: str) -> None:
        if not url.startswith(("file:", "data:", "blob:")):
            self.said.append(f"request: {url}")

    def centre(self, selector: str) -> tuple[float, float]:
        self.page.locator(selector).first.scroll_into_view_if_needed()
        box = self.page.locator(selector).first.bounding_box()
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def tip(self) -> str:
        return self.page.locator("#tip").inner_text()


def written(tmp_path: Path, page: bytes) -> Path:
    assert len(page) <= MAX_BYTES
    path = tmp_path / "report.html"
    path.write_bytes(page)
    return path


def check_readable(opened: Opened, size: dict[str, int]) -> None:
    """No serious fault by axe-core; nothing is said on the console; nothing sticks out of the page."""
    found = axe.Axe().run(opened.page).response["violations"]
    serious = [
        (each["id"], each["nodes"][0]["html"][:200]) for each in found if each["impact"] in ("serious", "critical")
    ]
    assert serious == []
    assert opened.said == []
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= size["width"]


def check_sections(opened: Opened) -> None:
    """Each link leads to its section; each section says something, and each chart is drawn."""
    for link in opened.page.locator("nav a").all():
        link.click()
        section = opened.page.locator(link.get_attribute("href"))
        opened.page.wait_for_function(
            "id => document.querySelector(id).getBoundingClientRect().top < innerHeight", arg=link.get_attribute("href")
        )
        assert len(section.inner_text()) > 40
    assert opened.page.locator(".chart").count() == opened.page.locator(".chart .main-svg:first-child").count() > 0
    assert opened.said == []


@pytest.mark.parametrize(
    ("name", "board", "options"),
    [
        ("resnet8", "zedboard", {"macs_per_dsp": "auto"}),
        ("vgg16:7", "vc709", {}),
        ("alexnet", "zedboard", ONE_CORE),
        ("autoencoder", "zedboard", {**ONE_CORE, "batch": 4}),
        ("decoilfnet-example", "zedboard", {"template": "pyramid"}),
        ("examples/digits/digits.onnx", "zedboard", {"groups": "conv1-pool1,conv3-fc", "in_turn": True}),
    ],
)
def test_plans(browser, tmp_path, name, board, options):
    """Of whatever kind: on a light desk and on a dark phone."""
    path = written(tmp_path, hwgen.load(name).plan(board, **options).page())
    for scheme, size in (("light", DESK), ("dark", PHONE)):
        opened = Opened(browser, path, scheme, size)
        check_readable(opened, size)
        check_sections(opened)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_readable(browser, tmp_path, digits, scheme, size):
    check_readable(Opened(browser, written(tmp_path, digits.page()), scheme, size), size)


def test_click_shows_a_layer(browser, tmp_path, digits):
    opened = Opened(browser, written(tmp_path, digits.page()))
    opened.page.click(".node[data-id='layer conv2']")
    assert "conv2 (conv)" in opened.page.locator("#panel").inner_text()
    assert "1,152 of 8 bits" in opened.page.locator("#panel").inner_text()  # 16 x 8 x 3 x 3 weights
    assert opened.page.locator(".node[aria-pressed=true]").get_attribute("data-id") == "layer conv2"
    opened.page.locator(".node[data-id='layer fc']").press("Enter")
    assert "fc (conv)" in opened.page.locator("#panel").inner_text()
    assert opened.said == []


def test_words_are_explained(browser, tmp_path, digits):
    """Under the pointer and under the focus; Escape takes it away."""
    opened = Opened(browser, written(tmp_path, digits.page()))
    word = opened.page.locator("#table .word", has_text="Tm")
    word.hover()
    assert opened.tip() == "output channels computed per cycle"
    opened.page.mouse.move(5, 5)
    assert not opened.page.locator("#tip").is_visible()
    opened.page.locator("#table .word", has_text="busy").focus()
    assert opened.tip() == "the layer's cycles as a share of the slowest layer's cycles"
    opened.page.keyboard.press("Escape")
    assert not opened.page.locator("#tip").is_visible()


def test_timeline_says_who_waits(browser, tmp_path, digits):
    """At the beginning the last layer waits for the one before it; frames in a row are another drawing."""
    opened = Opened(browser, written(tmp_path, digits.page()))
    opened.centre("#chart-times .nsewdrag")
    box = opened.page.locator("#chart-times .nsewdrag").bounding_box()
    x, y = box["x"] + 5, box["y"] + box["height"] * 0.93
    opened.page.mouse.move(x, y)
    opened.page.mouse.move(x + 1, y)
    opened.page.wait_for_selector("#tip:not([hidden])")
    assert "fc, cycles" in opened.tip()
    assert "100% waits for input from pool2" in opened.tip()
    opened.page.check("input[name=view][value=steady]")
    last = opened.page.evaluate("document.getElementById('chart-times').data[0].x.slice(-1)[0]")
    first = opened.page.evaluate("document.getElementById('chart-times').data[0].x[0]")
    assert last - first == digits.interval
    assert opened.said == []


def test_engine(browser, tmp_path, engine):
    """Its bands say what the array and the port do; a click shows a layer's tile; operands have their loops."""
    outputs = np.zeros((2, 10), np.float32)
    run = result(outputs, predicted_bytes=(1, 2)).document()
    path = written(tmp_path, html.render({**engine.document(), **run}))
    for scheme, size in (("dark", DESK), ("light", PHONE)):
        opened = Opened(browser, path, scheme, size)
        check_readable(opened, size)
        check_sections(opened)
    opened = Opened(browser, path)
    opened.centre("#chart-times .nsewdrag")
    box = opened.page.locator("#chart-times .nsewdrag").bounding_box()
    bands = len(engine_group(engine.plan.groups[0]).bands)
    for band, name, says in ((0, "the array", "multiplies"), (1, "the port", "reads maps and weights")):
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] * (band + 0.5) / bands
        opened.page.mouse.move(x, y)
        opened.page.mouse.move(x + 1, y)
        opened.page.wait_for_function("name => document.getElementById('tip').innerText.startsWith(name)", arg=name)
        assert says in opened.tip()
    opened.page.click(".node[data-id='layer conv']")
    assert "steps" in opened.page.locator("#panel").inner_text()
    assert "box > fold > tile > chunk" in opened.page.locator("#memory").inner_text()
    names = opened.page.evaluate("document.getElementById('chart-roofline').data.map((trace) => trace.name)")
    assert names == ["the board", "the engine and its port", "a layer", "the plan"]
    opened.page.locator("#memory .word", has_text="loops").hover()
    assert "fold: output maps" in opened.tip()
    assert opened.said == []


def test_vivado(browser, tmp_path, digits):
    """What Vivado made, beside the estimate; or why it is left out."""
    for name in ("registers", "plan"):
        text = {"registers": '{"build_hash": "0x1"}', "plan": digits.to_json()}[name]
        (tmp_path / f"{name}.json").write_text(text)
    (tmp_path / vivado.MEASURED).write_text(json.dumps({**MEASURED, "build_hash": "0x1"}))
    found = vivado.document(tmp_path)
    path = written(tmp_path, html.render({**digits.document(), "vivado": found, "remarks": ["this is left out"]}))
    for scheme, size in (("light", DESK), ("dark", PHONE)):
        opened = Opened(browser, path, scheme, size)
        check_readable(opened, size)
        assert "100 MHz would just do" in opened.page.locator("#vivado").inner_text()  # 8 ns and 2 ns more
        assert "this is left out" in opened.page.locator("header").inner_text()
        opened.page.locator("#vivado .word").hover()
        assert opened.tip().startswith("What the plan estimates of the accelerator")


def test_fifo_is_chosen(browser, tmp_path, digits):
    opened = Opened(browser, written(tmp_path, digits.page()))
    opened.page.select_option("#fifo", "2")
    depth = digits.config.fifo_depths[2]
    drawn = "document.getElementById('chart-fifo')"
    assert opened.page.evaluate(f"{drawn}.layout.shapes[0].y0") == depth
    opened.page.check("input[name=view][value=steady]")
    assert opened.page.evaluate(f"Math.max(...{drawn}.data[0].y)") == depth


def test_paper(browser, tmp_path, digits):
    """Printed in light colours, whatever the screen has."""
    opened = Opened(browser, written(tmp_path, digits.page()), "dark")
    assert len(opened.page.pdf(format="A4")) > 20_000
    assert opened.said == []


def test_sections_of_other_verbs(browser, tmp_path, digits):
    """A difference is drawn three times, with a cross; estimates stand beside what Yosys makes."""
    rng = np.random.default_rng(0)
    wanted = rng.integers(0, 200, (1, 2, 9, 12)).astype(np.uint8)
    seen = wanted.copy()
    seen[0, 1, 4, 6:8] += 3
    outputs = rng.random((50, 10)).astype(np.float32)
    drawn = difference(compare(seen, wanted, layer="conv2"))
    found = result(outputs, mismatches=2, difference=drawn).document(rng.integers(0, 10, 50))
    rows = [
        ComponentRow(layer=layer.name, component="compute", estimate=layer.resources, measured=layer.resources)
        for layer in digits.config.layers
    ]
    page = html.render({**digits.document(), **found, "synthesis": Synthesis(tuple(rows)).document()})
    for scheme, size in (("light", DESK), ("dark", PHONE)):
        opened = Opened(browser, written(tmp_path, page), scheme, size)
        check_readable(opened, size)
        chart = "document.getElementById('chart-difference').data"
        assert opened.page.evaluate(f"{chart}[2].z[4].slice(5, 9)") == [0, 3, 3, 0]
        assert opened.page.evaluate(f"[{chart}[3].x[0], {chart}[3].y[0]]") == [6, 4]
        bars = "document.getElementById('chart-synthesis').data"
        assert opened.page.evaluate(f"{bars}.length") == 4


def test_fronts(browser, tmp_path):
    """Pointing at a front's point names its groups; the plan is marked."""
    network = shapes.graph("vgg19").first(5)
    names = [layer.name for layer in network.layers]
    plan = exploration.chosen(a_plan(names[:2], names[2:]), "plan.json", network)
    document = exploration.document(explore(network, hwgen.boards.load("vc709")), plan)
    path = written(tmp_path, html.render({"title": "fronts", "fronts": document}))
    check_readable(Opened(browser, path, "dark", PHONE), PHONE)
    opened = Opened(browser, path)
    check_readable(opened, DESK)
    x, y = opened.centre("#chart-front-0 .scatterlayer .trace:nth-child(2) .point")
    opened.page.mouse.move(x - 30, y)
    opened.page.mouse.move(x, y)
    opened.page.wait_for_selector("#chart-front-0 .hoverlayer .hovertext")
    assert "conv1_1" in opened.page.locator("#chart-front-0 .hoverlayer").text_content()
    traces = opened.page.evaluate("document.getElementById('chart-front-0').data.map((trace) => trace.name)")
    assert "the plan" in traces
    assert opened.said == []
