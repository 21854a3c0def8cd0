"""Settings of the whole suite: hypothesis without deadlines, waveforms on request."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
from collections.abc import Generator
from functools import wraps
from pathlib import Path

# Before NumPy is imported, here and in processes that tests start: a second thread of OpenBLAS waits busily for its
# part of each product of small matrices, on a core that another test could use.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import onnxruntime
import precise_sessions
import pytest
import testbench
from counted import counted
from hypothesis import HealthCheck, is_hypothesis_test, settings

# Simulated hardware takes its time, and many random layers can't be. A failure prints the blob that repeats it
# (``@reproduce_failure``). The default run draws the same examples each time, so that it fails for a change and not for
# a draw; ``--hypothesis-profile=random`` draws others, as bench/long.py does.
for profile, derandomize in (("repeatable", True), ("random", False)):
    settings.register_profile(
        profile,
        deadline=None,
        derandomize=derandomize,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
settings.load_profile("repeatable")
precise_sessions.install()


ROOT = Path(__file__).resolve().parent.parent


class TopIsNoPackage:
    """The ``__init__.py`` at the top of the checkout is for who imports hwgen beside it: pytest shall not take the
    checkout for a package, import it, and put the folder that it lies in on the path."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collect_directory(self, path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        return pytest.Dir.from_parent(parent, path=path) if path == ROOT else None


def pytest_configure(config: pytest.Config) -> None:
    helpers = [path.stem for path in (ROOT / "rtl_tests" / "support").glob("*.py") if path.stem not in sys.modules]
    pytest.register_assert_rewrite(*helpers)  # a failed check says what was compared
    config.pluginmanager.register(TopIsNoPackage())
    if sys.dont_write_bytecode and hasattr(config, "cache"):
        # none beside the sources: kept in pytest's folder, so that not every process of every run rewrites all checks
        sys.dont_write_bytecode, sys.pycache_prefix = False, str(config.cache.mkdir("bytecode"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--vcd", metavar="DIR", help="write the last simulation of each test as DIR/TEST.vcd")


def pytest_collection_finish() -> None:
    """What is imported stays: left out of every search for garbage, which takes a tenth of the processors' time."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    directory = item.config.getoption("--vcd")
    if directory:
        Path(directory).mkdir(parents=True, exist_ok=True)
        testbench.waves = Path(directory) / (re.sub(r"\W+", "_", item.nodeid) + ".vcd")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Every random test counts the cases that it checks; the mark ``cases`` names another least number of them."""
    if not is_hypothesis_test(pyfuncitem.obj):
        return (yield)
    mark = pyfuncitem.get_closest_marker("cases")
    with counted(pyfuncitem.obj, *(mark.args if mark else ())):
        return (yield)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory):
    """What hwgen keeps, in a folder of this run alone, which its workers share: nothing older can hide a failure."""
    folder = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HWGEN_CACHE", str((folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "kept"))
        yield


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What hwgen keeps, in a folder of one test: no other test's result is found."""
    monkeypatch.setenv("HWGEN_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session", autouse=True)
def _no_progress():
    """No lines about how far work is, here and in the processes that tests start, however slow the machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HWGEN_PROGRESS", "off")
        yield


@pytest.fixture(scope="session", autouse=True)
def _searches_in_this_process():
    """Only searches of more than a minute start processes, which costs two seconds, where tests run on all cores."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hwgen.work.steps.ALONE", 60.0)
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """A session of ONNX Runtime has one thread if it names no other number: idle ones keep a core busy."""
    start = onnxruntime.InferenceSession.__init__

    @wraps(start)
    def start_with_one(session, model, sess_options=None, *arguments, **named):
        options = sess_options or onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.intra_op_num_threads or 1
        start(session, model, options, *arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnxruntime.InferenceSession, "__init__", start_with_one)
        yield


@pytest.fixture(scope="session", autouse=True)
def _bytecode(tmp_path_factory):
    """Let the processes that tests start keep bytecode, if it isn't kept beside the sources.

    Otherwise each of them compiles all of hwgen again.
    """
    if not (sys.dont_write_bytecode or sys.pycache_prefix):
        yield
        return
    folder = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        shared = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
        patch.setenv("PYTHONPYCACHEPREFIX", sys.pycache_prefix or str(shared / "bytecode"))
        yield


@pytest.fixture(scope="session", autouse=True)
def heard():
    """Where the tests run with a signal ignored (under nohup, in a script's background), what they start hears it."""
    ignored = [number for number in (signal.SIGINT, signal.SIGHUP) if signal.getsignal(number) == signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
