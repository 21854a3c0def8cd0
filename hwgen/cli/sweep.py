"""Command ``hwgen sweep``: plan models with all combinations of option values, and write one table."""

from __future__ import annotations

import argparse
from pathlib import Path

from hwgen.cli import options
from hwgen.cli import plan as common
from hwgen.cli.outputs import Outputs
from hwgen.errors import CheckError, InputError


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``hwgen sweep`` to a parser."""
    options.model_options(parser, nargs="+", calibration="typical inputs, to quantise a single float model")
    options.board_options(parser, "B,C", "boards (see 'hwgen boards') or .toml files", required=True)
    options.swept_options(parser)
    parser.add_argument(
        "--front", default="interval,dsp", metavar="NAMES", help="axes of the Pareto front (default: interval,dsp)"
    )
    parser.add_argument(
        "-o", "--output", default="sweep.csv", metavar="FILE", help="the table: .csv or .parquet (default: sweep.csv)"
    )
    options.work_options(parser, "number of plans to make in parallel on this machine (default: all cores)")


def run(arguments: argparse.Namespace) -> int:
    """Run ``hwgen sweep``, which prints a summary and writes the table of all plans, and return the exit status.

    Raises
    ------
    CheckError
        If no row has a plan.
    InputError
        If options contradict each other, or the output has another ending than ``.csv`` and ``.parquet``.
    """
    from hwgen import api
    from hwgen.explore.sweep import require_pyarrow
    from hwgen.report import sweep as report

    outputs = Outputs(arguments)
    suffix = Path(arguments.output).suffix
    if suffix not in (".csv", ".parquet"):
        raise InputError(f"--output {arguments.output} must end in .csv or .parquet")
    if suffix == ".parquet":
        require_pyarrow()
    front = [_GOALS.get(name, name) for name in str(arguments.front).split(",")]
    options.check_jobs(arguments)
    if arguments.calibration is not None and len(arguments.model) > 1:
        raise InputError("--calibration applies to one model, not to several: sweep the models one by one")
    given = options.model_given(arguments)
    models = [api.load(model, **given) for model in arguments.model]
    for model in models:
        common.tell_of(model)
    table = api.sweep(
        models,
        arguments.board.split(","),
        front=front,
        cluster=arguments.cluster,
        jobs=arguments.jobs,
        progress=True,
        **options.given_options(arguments),
    )
    outputs.add(arguments.output, table.csv() if suffix == ".csv" else table.parquet())
    outputs.write()
    print(report.summary(table, arguments.output))
    print(f"wrote {arguments.output}: {len(table.rows):,} rows")
    if not table.planned:
        raise CheckError("no plan was found; each row of the table states why")
    return 0


_GOALS = {"interval": "interval_ms", "latency": "latency_ms", "bram": "bram36", "traffic": "map_bytes"}
