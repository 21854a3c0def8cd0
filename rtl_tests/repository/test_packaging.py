"""What an installation holds, from a wheel and editable, each in a fresh environment away from the checkout."""

import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BOARDS = sorted(path.stem for path in (ROOT / "boards").glob("*.toml"))
HOOKS = {"wheel": "build_wheel", "editable": "build_editable"}


def run(*command, cwd, **options):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=300, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A copy of what is packaged, so that building leaves nothing in the checkout."""
    copy = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE", "__init__.py"):
        shutil.copy(ROOT / name, copy)
    for name in ("hwgen", "boards"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"), symlinks=True)
    return copy


@pytest.fixture(scope="module", params=sorted(HOOKS))
def distribution(request, source, tmp_path_factory):
    """A wheel file, made by setuptools alone (no index, no network)."""
    folder = tmp_path_factory.mktemp(request.param)
    script = f"import sys; from setuptools import build_meta; build_meta.{HOOKS[request.param]}(sys.argv[1])"
    run(sys.executable, "-c", script, str(folder), cwd=source)
    (file,) = folder.glob("*.whl")
    return request.param, file


@pytest.fixture(scope="module")
def installed(distribution, tmp_path_factory):
    """The scripts of a fresh environment that holds hwgen and nothing else."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    install = ["install", "--quiet", "--no-index", "--no-deps", str(distribution[1])]
    run(sys.executable, "-m", "pip", "--python", str(python), *install, cwd=folder)
    return python.parent


def test_wheel_holds_one_package(distribution):
    kind, file = distribution
    files = zipfile.ZipFile(file).namelist()
    tops = {name.split("/")[0] for name in files}
    assert not tops & {"boards", "build", "bench", "examples", "rtl_tests"}
    (top_level,) = [name for name in files if name.endswith("top_level.txt")]
    assert zipfile.ZipFile(file).read(top_level).decode().split() == ["hwgen"]
    if kind == "wheel":
        assert {top for top in tops if not top.endswith(".dist-info")} == {"hwgen"}


def test_wheel_holds_every_file(distribution):
    kind, file = distribution
    if kind != "wheel":
        pytest.skip("an editable installation holds no files")
    packed = set(zipfile.ZipFile(file).namelist())
    expected = {f"hwgen/boards/{path.name}" for path in (ROOT / "boards").iterdir() if path.is_file()}
    expected |= {str(path.relative_to(ROOT)) for path in (ROOT / "hwgen").rglob("*") if path.is_file()}
    expected = {name for name in expected if "__pycache__" not in name}
    assert expected <= packed


def test_boards_work_away_from_the_checkout(installed, tmp_path):
    script = (
        "import hwgen.boards, importlib.util\n"
        "assert importlib.util.find_spec('boards') is None\n"
        "print(*hwgen.boards.names(), hwgen.boards.load('vc709').dsp)"
    )
    assert run(installed / "python", "-c", script, cwd=tmp_path).split() == [*BOARDS, "3600"]


def test_command_works_away_from_the_checkout(installed, tmp_path):
    assert "XC7Z020" in run(installed / "hwgen", "boards", cwd=tmp_path)


def test_version_is_the_distribution_s(installed, tmp_path):
    version = run(installed / "hwgen", "--version", cwd=tmp_path).split()[1]
    assert f'version = "{version}"' in (ROOT / "pyproject.toml").read_text()


@pytest.fixture
def beside(source, tmp_path):
    """A folder with a checkout called hwgen in it."""
    shutil.copytree(source, tmp_path / "hwgen", ignore=shutil.ignore_patterns("build", "*.egg-info"), symlinks=True)
    return tmp_path


IMPORTS = "import hwgen, hwgen.boards; print(hwgen.InputError.__name__, hwgen.boards.names(), hwgen.__file__)"


@pytest.mark.parametrize("place", [".", "hwgen", "elsewhere"])
def test_import_beside_a_checkout(installed, beside, place):
    """Beside, in, and away from a folder of sources that is called like the package."""
    (beside / "elsewhere").mkdir()
    told = run(installed / "python", "-c", IMPORTS, cwd=beside / place)
    assert told.startswith(f"InputError {BOARDS} ")
    assert Path(told.split()[-1]).parts[-2:] == ("hwgen", "__init__.py")
    run(installed / "python", "-m", "hwgen.cli", "boards", cwd=beside / place)
    script = beside / "script.py"
    script.write_text(IMPORTS)
    assert run(installed / "python", str(script), cwd=beside / place).startswith("InputError ")


def test_import_beside_a_checkout_without_an_installation(beside, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    done = subprocess.run([python, "-c", "import hwgen"], cwd=beside, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    line = done.stderr.splitlines()[-1]
    assert line.startswith(
        f"ImportError: hwgen is not installed for {python}: {beside / 'hwgen'} is only the folder of "
    )
    assert "README.md says how to install it" in line
