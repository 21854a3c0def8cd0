"""What docs/ and the README print for users to type runs as it is printed; the site builds."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hwgen.cli import main as cli
from hwgen.report import legend

ROOT = Path(__file__).resolve().parents[2]


def commands(block):
    """Commands of a shell block, continued lines joined, comments left out."""
    lines = block.replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]


DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))


def runnable(page: Path) -> list[tuple[str, str]]:
    """Blocks to run, in order: their language and their text."""
    return re.findall(r"^```(sh|python)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


RUNNABLE = [page for page in PAGES if runnable(page)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """What a page's reader has: the folder of the sources, as far as pages read it, and build/."""
    for name in ("examples", "boards"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "build").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: str(page.relative_to(DOCS).with_suffix("")))
def test_commands_are_good_ones(page, folder):
    """Every command parses, and the files that it reads are there or were written by one before."""
    for language, block in runnable(page):
        for command in commands(block) if language == "sh" else ():
            words = shlex.split(command)
            if words[0] == "hwgen":
                arguments = cli.parser().parse_args(words[1:])
                for option in ("model", "calibration", "input", "labels"):
                    value = getattr(arguments, option, None)
                    for name in value if isinstance(value, list) else [value]:
                        assert not name or not Path(name).suffix or "@" in name or Path(name).exists(), command


@pytest.mark.long
@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: str(page.relative_to(DOCS).with_suffix("")))
def test_pages_run_as_printed(page, folder):
    """In order, by the installed command; what a block prints is not compared."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for language, block in runnable(page):
        words = ["bash", "-e", "-c", block] if language == "sh" else [sys.executable, "-c", block]
        done = subprocess.run(
            words, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (page.name, block, done.stderr)


@pytest.mark.long
def test_the_site_builds(tmp_path):
    """Every page is in the navigation, every link and anchor leads somewhere; `.ci/run` builds it as well."""
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(tmp_path / "site")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    site = tmp_path / "site"
    pages = {path.relative_to(site).with_suffix("") for path in site.rglob("*.html")}
    assert pages >= {page.relative_to(DOCS).with_suffix("") for page in PAGES} | set(
        map(Path, ("index", "changelog", "digits", "detector"))
    )
    row = re.compile(r"<td>BatchNormalization</td>\s*<td>yes</td>\s*<td></td>\s*<td>yes</td>")
    assert row.search((site / "reference" / "operator-table.html").read_text(encoding="utf-8"))
    for name, text in (("python", "simulate"), ("command-line", "--wave-frames")):
        assert text in (site / "reference" / f"{name}.html").read_text(encoding="utf-8")


def test_links_lead_somewhere_in_the_repository():
    """Every relative link of the pages names a file or folder, and its anchor a heading of that file."""
    for page in (*PAGES, ROOT / "README.md", ROOT / "CHANGELOG.md"):
        text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)]*))?\)", text):
            file = (page.parent / target).resolve() if target else page
            assert file.exists(), f"{page}: {target}"
            if anchor:
                assert anchor in anchors(file), f"{page}: {target}#{anchor}"


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as MkDocs and code hosts make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\s-]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def test_files_that_pages_name_exist():
    """Paths in back quotes, from the folder of the sources or from hwgen/."""
    found = 0
    for page in PAGES:
        for path in re.findall(r"`((?:\w+/)+\w+\.py)`", page.read_text(encoding="utf-8")):
            roots = (ROOT, ROOT / "hwgen", ROOT / "hwgen" / "network", ROOT / "rtl_tests")
            assert any((root / path).is_file() for root in roots), f"{page}: {path}"
            found += 1
    assert found > 50


README = (ROOT / "README.md").read_text()
SET_UP = "python3 -m venv .venv && .venv/bin/pip install -q -e "


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


PAGE = (ROOT / "docs" / "reference" / "command-line.md").read_text()
COMMANDS = [command for block in blocks(README, "sh") for command in commands(block)]
EXAMPLES = [command for block in blocks(PAGE, "sh") for command in commands(block)]
OF_HWGEN = [shlex.split(command)[1:] for command in COMMANDS if command.startswith(".venv/bin/hwgen ")]
OF_HWGEN += [shlex.split(command)[1:] for command in EXAMPLES]
HELP = commands(cli.EXAMPLES.split("\n", 1)[1])
SLOW = ("compare", "prove", "route", "simulate", "synth")  # Verilator, Yosys and solvers: in the long tests
#: Options of an engine that is built at once; the long tests build the one of the page.
SMALL_ENGINE = ["--cores", "1", "--array", "8x5"]
ENGINE = [words for words in OF_HWGEN if "build/engine" in words]
LONG_PLANS = [words for words in OF_HWGEN if words[0] == "sweep" or words[:2] == ["plan", "resnet8"]]


@pytest.fixture
def examples(tmp_path, monkeypatch):
    """What the commands read, in a folder of its own."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / "build").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_set_up_commands():
    """Two, the main job and the tests; .ci/run takes both, and nothing else, from the README."""
    pattern = re.search(r"grep '(.*)' README\.md", (ROOT / ".ci" / "run").read_text())
    assert pattern
    taken = [line for line in README.splitlines() if re.search(pattern[1], line)]
    assert taken == [command for command in COMMANDS if " -m venv " in command]
    assert [command.removeprefix(SET_UP) for command in taken] == [
        ". && .venv/bin/python examples/digits/run.py",
        "'.[test]' && .venv/bin/pytest -n auto",
    ]


def test_examples_cover_the_verbs():
    assert {shlex.split(command)[1] for command in EXAMPLES} >= {
        "check",
        "plan",
        "build",
        "report",
        "simulate",
        "compare",
        "compile",
        "golden",
        "explore",
        "block",
        "sweep",
        "synth",
    }


def test_extras_come_before_what_needs_them():
    extras = PAGE.index("pip install -e '.[synth,plot,prove]'")
    needing = [PAGE.index(f"\n{command}\n") for command in EXAMPLES if " synth " in command or "--plot" in command]
    assert needing
    assert extras < min(needing)


def test_quick_commands_run_in_order(examples, capfd):
    pytest.importorskip("matplotlib")
    for words in OF_HWGEN:
        if words[0] not in SLOW and words not in LONG_PLANS:
            more = SMALL_ENGINE if words[0] == "build" and words in ENGINE else []
            assert cli.main(words + more) == 0, (words, capfd.readouterr().err)
    assert {"plan.json", "digits", "y16.npy", "fronts.svg"} <= {path.name for path in (examples / "build").iterdir()}


@pytest.mark.long
def test_commands_of_an_engine(examples, capfd):
    for words in ENGINE:
        if words[0] not in SLOW:
            assert cli.main(words) == 0, capfd.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize("words", LONG_PLANS, ids=" ".join)
def test_commands_that_plan_for_long(words, examples, capfd):
    assert cli.main(words) == 0, capfd.readouterr().err


def test_help_examples_are_good_commands(examples):
    outputs = []
    for words in map(shlex.split, HELP):
        arguments = cli.parser().parse_args(words[1:])
        for option in ("model", "input", "calibration", "plan"):
            value = getattr(arguments, option, None)
            if isinstance(value, str) and Path(value).suffix:
                assert Path(value).exists() or value in outputs, words
        outputs.append(getattr(arguments, "output", None))


def test_scripts_that_pages_name_exist():
    for page in [ROOT / "README.md", ROOT / "bench" / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for script in re.findall(r"python ((?:bench|examples)/\S+?\.py)", page.read_text()):
            assert (ROOT / script).is_file(), f"{page}: {script}"


# The words for the columns of a plan's table


def test_legend_names_every_column(examples, capfd):
    assert cli.main(["plan", "examples/digits/digits.onnx", "--board", "zedboard"]) == 0
    head, *lines = capfd.readouterr().out.splitlines()
    assert head.split()[3:] == list(legend.COLUMNS)
    below = "\n".join(lines[lines.index("") + 1 :])
    assert below.startswith("\n".join(legend.UNDER_TABLE) + "\n\n")
    for column in legend.COLUMNS:
        assert re.search(rf"\b{column}\b", "\n".join(legend.UNDER_TABLE)), column


@pytest.mark.parametrize("verb", ["plan", "build", "simulate", "synth"])
def test_help_says_what_columns_mean(capfd, verb):
    with pytest.raises(SystemExit):
        cli.main([verb, "--help"])
    told = capfd.readouterr().out.splitlines()
    for column, meaning in legend.COLUMNS.items():
        (line,) = [line for line in told if line.split() == [column, *meaning.split()]]
        assert len(line) <= 80
    assert any(line.startswith(f"  hwgen {verb} ") for line in told)


@pytest.mark.parametrize(("verb", "extra"), [("synth", "synth"), ("explore", "plot"), ("block", "plot")])
def test_help_names_the_extra(capfd, verb, extra):
    with pytest.raises(SystemExit):
        cli.main([verb, "--help"])
    told = " ".join(capfd.readouterr().out.split())
    assert f"needs the extra '{extra}'" in told


def test_docs_say_the_same_of_columns():
    page = (ROOT / "docs" / "reference" / "plan.md").read_text()
    for columns in (legend.COLUMNS, *legend.OWN.values()):
        for column, meaning in columns.items():
            assert f"| `{column}` | {meaning} |\n" in page


# In a copy of the checkout, in a fresh environment: needs a package index, Verilator's compiler and minutes


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    copy = tmp_path_factory.mktemp("copy") / "hwgen"
    ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", "*.egg-info", ".*_cache", ".hypothesis")
    shutil.copytree(ROOT, copy, ignore=ignored, symlinks=True)
    for path in (copy / "build").iterdir():
        if path.name != "README.md":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return copy


def shell(command, folder):
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, capture_output=True, text=True, check=False, timeout=1800
    )
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


@pytest.mark.long
def test_readme_runs_as_printed(checkout):
    """All of it but the run of all tests and of .ci/run, which are what runs this."""
    for command in COMMANDS:
        if command != ".ci/run":
            shell(command.removesuffix(" && .venv/bin/pytest -n auto"), checkout)
    (snippet,) = blocks(README, "python")
    assert snippet.splitlines()[0] == "import hwgen"
    shell(f".venv/bin/python -c {shlex.quote(snippet)}", checkout)


@pytest.mark.long
def test_help_examples_run_as_printed(examples, capfd):
    for words in map(shlex.split, HELP):
        assert cli.main(words[1:]) == 0, (words, capfd.readouterr().err)
