"""``bench/fuzz``: what it takes for a failure, and that it runs."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz import mutate
from fuzz.__main__ import outcome

BENCH = Path(__file__).resolve().parents[2] / "bench"


def _quote(rng: random.Random) -> int:
    print("hwgen: x.json: '<' not supported between instances of 'str' and 'int'")
    return 2


def _missing(rng: random.Random) -> int:
    raise TypeError("Model.plan: missing a required argument: 'board'")


@pytest.mark.parametrize(
    ("case", "begin"),
    [
        (lambda rng: 0, "status 0"),
        (lambda rng: 2, "status 2"),
        (lambda rng: 3, "exit status 3"),
        (lambda rng: {}["x"], "traceback: "),
        (lambda rng: sys.exit(2), "status 2"),
        (lambda rng: sys.exit(134), "exit status 134"),
        (_missing, "status 2"),
        (_quote, "quotes Python: hwgen: x.json"),
    ],
)
def test_outcomes(case, begin):
    assert outcome(case, 1).startswith(begin)


def test_mutations_are_repeatable_and_change_something():
    document = {"groups": [{"layers": [{"name": "conv", "depth": 3}], "tile": None}], "dsp": 20}
    made = [json.dumps(mutate.json_value(document, random.Random(seed))) for seed in range(300)]
    assert made == [json.dumps(mutate.json_value(document, random.Random(seed))) for seed in range(300)]
    assert document == {"groups": [{"layers": [{"name": "conv", "depth": 3}], "tile": None}], "dsp": 20}
    assert len(set(made)) > 200
    assert sum(text != json.dumps(document) for text in made) > 280


@pytest.mark.long
def test_a_few_cases_of_each():
    run = subprocess.run(
        [sys.executable, str(BENCH / "fuzz"), "--count", "60", "--seed", "100000"],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-1000:]
    assert run.stdout.count("60 cases (seeds 100000 to 100059)") == 6
