"""Options that would do nothing, or overwrite what is read, are refused or told."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hwgen
from hwgen import options as plan_options
from hwgen import work
from hwgen.cli import main as cli
from hwgen.gateware.engine.config import BUS_BYTES
from hwgen.network.graph import Network
from hwgen.network.maps import INT32, UINT8, FeatureMap, Window
from hwgen.network.ops import Conv
from hwgen.network.options import ModelOptions
from hwgen.plan import Request
from hwgen.templates import TEMPLATES

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
SMALL = ["decoilfnet-example", "--board", "zedboard"]
#: Options of a plan on an engine of one core, whose array fills the DSP slices of an XC7Z020.
ONE_CORE = ["--template", "engine", "--cores", "1", "--array", "8x13", "--bus-bits", "64"]
SIMULATE = ["simulate", *SMALL, "--input", "small.npy", "--simulator", "amaranth"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The current folder, with a model, frames of it, of the small network, and a plan of that."""
    monkeypatch.chdir(tmp_path)
    shutil.copyfile(DIGITS / "digits.onnx", "model.onnx")
    np.save("frames.npy", np.load(DIGITS / "images.npy")[:1])
    model = hwgen.load(SMALL[0])
    np.save("small.npy", np.zeros((3, *model.input.shape), model.input.type.dtype))
    return tmp_path


@pytest.fixture
def refused(here, capfd):
    """Run a command that must be refused without a change to the folder; its line."""

    def run(*arguments):
        before = {path.name: path.read_bytes() for path in here.iterdir() if path.is_file()}
        capfd.readouterr()
        assert cli.main([str(argument) for argument in arguments]) == 2
        said = capfd.readouterr().err
        assert said.startswith("hwgen: ")
        assert said.count("\n") == 1
        assert {path.name: path.read_bytes() for path in here.iterdir() if path.is_file()} == before
        return said

    return run


@pytest.mark.parametrize("way", ["same", "other path", "symbolic link", "hard link"])
@pytest.mark.parametrize(
    ("arguments", "source", "why"),
    [
        (["plan", "model.onnx", "--board", "zedboard", "-o"], "model.onnx", "would overwrite the model"),
        (["golden", "model.onnx", "--input", "frames.npy", "--output"], "model.onnx", "would overwrite the model"),
        (["golden", "model.onnx", "--input", "frames.npy", "--output"], "frames.npy", "overwrite what --input reads"),
        ([*SIMULATE, "--waves"], "small.npy", "overwrite what --input reads"),
        ([*SIMULATE, "--plan", "plan.json", "--json"], "plan.json", "overwrite what --plan reads"),
        (["plan", "model.onnx", "--board", "my.toml", "-o"], "my.toml", "overwrite what --board reads"),
        (
            ["golden", "model.onnx", "--calibration", "c.npy", "--input", "frames.npy", "--output"],
            "c.npy",
            "overwrite what --calibration reads",
        ),
        (["synth", "model.onnx", "--board", "zedboard", "--json"], "model.onnx", "would overwrite the model"),
        (["explore", "model.onnx", "--plot"], "model.onnx", "would overwrite the model"),
        (["block", "model.onnx", "--memory", "32KB", "--json"], "model.onnx", "would overwrite the model"),
    ],
)
def test_outputs_that_would_overwrite_an_input(refused, here, arguments, source, why, way):
    if not Path(source).exists():
        Path(source).write_text("{}")
    output = {"same": source, "other path": f"./{here.name}/../{source}"}.get(way, "link")
    (here / here.name).mkdir()
    if way == "symbolic link":
        Path("link").symlink_to(source)
    elif way == "hard link":
        os.link(source, "link")
    assert why in refused(*arguments, output)


@pytest.mark.parametrize(
    ("arguments", "one", "other"),
    [
        (SIMULATE, "--json", "--output"),
        (SIMULATE, "--json", "--waves"),
        (["explore", "lenet5"], "--json", "--plot"),
        (["block", "lenet5", "--memory", "32KB"], "--json", "--plot"),
    ],
)
def test_two_outputs_of_one_file(refused, here, arguments, one, other):
    assert "are the same file: give two different files" in refused(*arguments, one, "y.svg", other, "./y.svg")
    Path("link").symlink_to("y.svg")
    assert "are the same file: give two different files" in refused(*arguments, one, "y.svg", other, "link")


def test_outputs_that_are_no_plain_file(refused, here):
    os.mkfifo("pipe")
    for path in ("/dev/null", "/dev/stdout", "pipe"):
        assert f"output {path} can't be written: it is not a regular file; give another path" in refused(
            *SIMULATE, "--json", path
        )


def test_outputs_that_are_links(refused, here):
    """They are written through, and refused where they lead nowhere."""
    (here / "elsewhere").mkdir()
    for link, target in (("there", "elsewhere/there.json"), ("new", "elsewhere/new.json"), ("lost", "none/lost.json")):
        Path(link).symlink_to(target)
    Path("elsewhere/there.json").write_text("old")
    Path("loop").symlink_to("loop")
    for link in ("there", "new"):
        assert cli.main(["block", "lenet5", "--memory", "32KB", "--json", link]) == 0
        assert Path(link).is_symlink()
        assert Path(f"elsewhere/{link}.json").read_text().startswith("{")
    assert f"folder {here / 'none'} does not exist" in refused(*SIMULATE, "--json", "lost")
    assert "it is a symbolic link that refers to itself" in refused(*SIMULATE, "--json", "loop")
    assert "output '' can't be written: give the name of a file" in refused(*SIMULATE, "--json", "")


@pytest.mark.long
def test_builds_that_would_overwrite_what_is_the_users(refused, here):
    """A build of another plan, and after ``hwgen report`` and ``plan`` wrote there, needs no --force."""
    build = ["build", *SMALL, "-o", "result"]
    assert "output folder must have a name, not ''" in refused("build", *SMALL, "-o", "")
    Path("result").mkdir()
    Path("result/Makefile").write_text("all: # mine\n")
    assert cli.main([*build, "--force"]) == 0
    assert not Path("result/Makefile").read_text().startswith("all: # mine")
    assert cli.main(["report", "result"]) == 0
    assert cli.main(["plan", *SMALL, "-o", "result/plan.json"]) == 0
    assert cli.main([*build, "--multipliers", "dsp", "--dsp", "12"]) == 0
    for name in ("decoilfnet_example_tb.v", "plan.json"):
        path = Path("result") / name
        path.write_text(path.read_text() + "\n")
    assert "since: plan.json, decoilfnet_example_tb.v; give another folder, or --force" in refused(*build)


def test_more_jobs_than_frames_are_for(here, capfd, monkeypatch):
    given = []

    def simulate(self, frames, **options):
        given.append(options["jobs"])
        raise hwgen.ToolError("enough")

    monkeypatch.setattr(hwgen.Design, "simulate", simulate)
    for jobs in (["--jobs", "2"], ["--jobs", "1"], []):
        assert cli.main([*SIMULATE, "--simulator", "verilator", *jobs]) == 2
        said = capfd.readouterr().out
        assert ("--jobs 2: 3 frames allow 1, with at least 16 frames each" in said) == (jobs == ["--jobs", "2"])
    assert given == [2, 1, os.cpu_count()]


def one_layer(kernel):
    """A convolution of a 4 x 4 map, without padding."""
    before = FeatureMap(channels=2, height=4, width=4, type=UINT8)
    size = 5 - kernel
    layer = Conv(
        name="conv",
        input=before,
        output=FeatureMap(channels=2, height=size, width=size, type=INT32),
        window=Window(kernel=(kernel,) * 2),
        weights=np.ones((2, 2, kernel, kernel), np.int64),
        bias=np.zeros(2, np.int64),
        requantisation=None,
    )
    return hwgen.Model(Network(name="one", layers=(layer,)))


@pytest.mark.parametrize(("kernel", "differs"), [(1, False), (3, True)])
def test_overlap_that_makes_no_difference(here, capfd, monkeypatch, kernel, differs):
    """Windows of one pixel share none."""
    monkeypatch.setattr(cli.plan, "load", lambda arguments: one_layer(kernel))
    tile = "2x2" if kernel == 1 else "1x1"
    assert cli.main(["plan", "lenet5", "--board", "zedboard", "--tile", tile, "--overlap", "recompute"]) == 0
    said = "--overlap recompute has no effect: the tiles of this plan share no values\n"
    assert (said in capfd.readouterr().out) != differs


def test_overlap_without_a_pyramid(refused, here, monkeypatch):
    """A plan that comes out without pyramids although they were asked for."""
    plan = hwgen.Model.plan

    def flat(self, board, **options):
        return plan(self, board, dsp=30, multipliers="dsp")

    monkeypatch.setattr(hwgen.Model, "plan", flat)
    for option in (["--overlap", "recompute"], ["--tile", "1x1"]):
        line = refused("plan", *SMALL, *option, "-o", "plan.json")
        assert f"{option[0]} would have no effect, because no group of this plan uses pyramids" in line


def test_places_for_steps_that_a_plan_has_not(here, capfd):
    """Only plans on an engine are searched side by side."""
    assert cli.main(["plan", *SMALL, "--jobs", "2", "-o", "plan.json"]) == 0
    said = "--jobs has no effect: only plans for an engine (--template engine) are searched in parallel\n"
    assert said in capfd.readouterr().out
    assert cli.main(["build", *SMALL, "--plan", "plan.json", "--cluster", "local:2", "-o", "made"]) == 0
    assert "--cluster has no effect: --plan gives a finished plan, so nothing is searched\n" in capfd.readouterr().out
    assert cli.main(["plan", *SMALL, *ONE_CORE, "--jobs", "1"]) == 0
    assert "has no effect" not in capfd.readouterr().out


@pytest.mark.long
def test_former_name_of_a_template_is_accepted_with_a_line(here, capfd):
    said = "hwgen: --template tile is now called --template engine\n"
    assert cli.main(["plan", *SMALL, *ONE_CORE, "-o", "new.json"]) == 0
    assert capfd.readouterr().err == ""
    assert cli.main(["plan", *SMALL, "--template", "tile", *ONE_CORE[2:], "-o", "old.json"]) == 0
    assert capfd.readouterr().err == said
    assert Path("old.json").read_text() == Path("new.json").read_text()
    assert cli.main(["sweep", *SMALL, "--template", "stream,tile", "-o", "sweep.csv"]) == 0
    assert said in capfd.readouterr().err
    rows = Path("sweep.csv").read_text().splitlines()[1:]
    assert [row.split(",")[2] for row in rows] == ["stream", "engine"]


@pytest.mark.parametrize(
    ("options", "given"),
    [([], (None, None)), (["--jobs", "3"], (None, 3)), (["--cluster", "local:2"], ("local:2", None))],
)
def test_where_a_plan_is_searched(here, monkeypatch, options, given):
    """As the options say; without them in as many processes as there are cores."""
    asked, beside = [], work.beside
    monkeypatch.setattr(work, "beside", lambda *where: (asked.append(where), beside(*where))[1])
    assert cli.main(["plan", *SMALL, *ONE_CORE, *options]) == 0
    assert asked == [given]


def test_explore_tells_what_it_does_not_use(here, capfd):
    assert cli.main(["explore", "decoilfnet-example", "--calibration", "frames.npy"]) == 0
    assert "--calibration and --bits are not used: exploration needs only shapes\n" in capfd.readouterr().out


COLOUR = """\
    colour: str | None = option(
        Choice("red", "blue"),
        TEMPLATE,
        "of pyramids: paint the casing",
        swept="paints of the casing",
        template=PYRAMID,
        details="No paint if not given.",
    )
"""
"""An option that hwgen has not."""


@pytest.mark.long
def test_an_option_is_one_entry(tmp_path):
    """In a copy of hwgen with one entry more, command line, sweep and Python have the option."""
    shutil.copytree(
        Path(hwgen.__file__).parent, tmp_path / "hwgen", ignore=shutil.ignore_patterns("__pycache__", "*.min.js")
    )
    table, script = tmp_path / "hwgen" / "options" / "__init__.py", tmp_path / "script.py"
    text, before = table.read_text(encoding="utf-8"), "    batch: int | None = option("
    assert text.count(before) == 1
    table.write_text(text.replace(before, COLOUR + before), encoding="utf-8")
    script.write_text(
        """
import hwgen
from hwgen import boards
from hwgen.cli import main as cli
from hwgen.plan import Request

for verb in ("plan", "build", "simulate", "sweep"):
    try:
        cli.main([verb, "--help"])
    except SystemExit:
        print(verb)
small = ["decoilfnet-example", "--board", "zedboard"]
print(cli.main(["plan", *small, "--colour", "green"]))
print(cli.main(["plan", *small, "--colour", "red", "--template", "stream"]))
print(cli.main(["sweep", *small, "--colour", "red,blue", "-o", "colours.csv"]))
try:
    Request(colour="green")
except hwgen.PlanError as error:
    print(error)
print(Request(colour="red").goal(boards.load("zedboard")).colour)
print(hwgen.Model.plan.__doc__)
"""
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=True, env=env)
    helped = done.stdout.split("\nsweep\n")[0]
    assert helped.count("  --colour {red,blue}") == 3  # plan, build, simulate
    assert helped.count("of pyramids: paint the casing") == 3
    assert helped.count("  --colour red,blue") == 1
    assert helped.count("paints of the casing") == 1
    assert "hwgen: argument --colour: invalid choice: 'green' (choose from 'red', 'blue')" in done.stderr
    assert "work only with pyramids, not with the template stream" in done.stderr
    rows = (tmp_path / "colours.csv").read_text(encoding="utf-8").splitlines()
    assert [row.split(",")[2] for row in rows] == ["asked_colour", "red", "blue"]
    assert all(",pyramid," in row for row in rows[1:])
    assert "colour must be red or blue, not 'green'\nred\n" in done.stdout
    entry = "colour : {'red', 'blue'}, optional\n    Of pyramids: paint the casing. No paint if not given.\n"
    assert entry in done.stdout


def test_options_are_those_of_the_circuits():
    assert tuple(TEMPLATES) == plan_options.TEMPLATES
    assert tuple(8 * width for width in BUS_BYTES) == plan_options.BUS_BITS


def test_python_documents_every_option():
    """And `docs/reference/python.md` has a row for each."""
    for documented in (Request, hwgen.Model.plan):
        for name in plan_options.table():
            assert f"\n{name} : " in (documented.__doc__ or "")
    assert [row[0] for row in plan_options.rows()] == [f"`{name}`" for name in plan_options.table()]
    for documented in (hwgen.load, hwgen.check):
        for name in plan_options.table(ModelOptions):
            assert f"\n{name} : " in (documented.__doc__ or "")
    assert ("`pixels`", "`--input-type`") in [row[:2] for row in plan_options.rows(ModelOptions)]
    page = Path(__file__).resolve().parents[2] / "docs" / "reference" / "python.md"
    for table in ("<!-- options of a plan -->", "<!-- options of a model -->"):
        assert table in page.read_text(encoding="utf-8")


def test_an_option_of_a_model_is_one_entry(tmp_path):
    """One more field gives an option to every command that reads a model, to Python and to its checks."""
    script = tmp_path / "added.py"
    script.write_text(
        """
import dataclasses
from hwgen import options
from hwgen.network import options as model
from hwgen.options.kinds import Choice

@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ModelOptions(model.ModelOptions):
    colour: str | None = options.model_option(Choice("red", "blue"), "paint of the model", "No paint if not given.")

model.ModelOptions, model.AS_IT_IS = ModelOptions, ModelOptions()
import hwgen
from hwgen.cli import main as cli
from hwgen.network import load

for verb in ("check", "plan", "build", "simulate", "sweep", "golden", "compare", "compile", "weights", "report"):
    try:
        cli.main([verb, "--help"])
    except SystemExit:
        print(verb)
print(cli.main(["check", "lenet5", "--colour", "green"]))
print(cli.main(["check", "lenet5", "--colour", "red"]))
for value in ("green", "red"):
    try:
        print(hwgen.load("lenet5", colour=value))
    except hwgen.InputError as error:
        print(error)
print(hwgen.load.__doc__)
"""
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=True, env=env)
    assert done.stdout.count("  --colour {red,blue}") == 10
    assert "hwgen: argument --colour: invalid choice: 'green' (choose from 'red', 'blue')" in done.stderr
    assert "\ncolour must be red or blue, not 'green'\n<Model lenet5" in done.stdout
    assert "\ncolour : {'red', 'blue'}, optional\n    Paint of the model. No paint if not given.\n" in done.stdout
