"""Command ``hwgen report``: write the HTML report page of a result folder again."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwgen.cli import options
from hwgen.cli.outputs import Outputs
from hwgen.errors import InputError

if TYPE_CHECKING:
    from hwgen.api import Design


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``hwgen report`` to a parser."""
    parser.add_argument("folder", metavar="DIR", help="a folder that 'hwgen build' wrote")
    model, calibration = "the model, to recompute the whole plan", "the inputs given to 'hwgen build --calibration'"
    options.model_options(parser, nargs="?", model=model, calibration=calibration, bits="with --calibration")
    parser.add_argument("--board", metavar="B", help="with MODEL: the board's .toml file, if it is not built in")


def run(arguments: argparse.Namespace) -> int:
    """Run ``hwgen report``, which writes a result folder's page again, and return the exit status.

    The page of a result folder is written again, with the figures of Vivado's reports if the folder has them.
    """
    from hwgen.report.page import html, vivado

    folder = Path(arguments.folder)
    if not folder.is_dir():
        raise InputError(f"folder {folder} does not exist: give one that 'hwgen build' wrote")
    path = folder / html.NAME
    document = _read_page(path) if arguments.model is None else html.merged(_load_design(arguments).document(), path)
    document = {name: part for name, part in document.items() if name not in ("vivado", "remarks")}
    measured = None
    try:
        measured = vivado.document(folder)
    except vivado.StaleError as error:
        document["remarks"] = [str(error)]
        print(f"hwgen: warning: {error}", file=sys.stderr)
    if measured is not None:
        document["vivado"] = measured
    arguments.report = str(path)
    outputs = Outputs(arguments)
    outputs.add(str(path), html.render(document))
    outputs.write()
    if measured is not None:
        print(vivado.line(measured))
    print(f"wrote {path}: " + ", ".join(title for _, title in html.sections(document)))
    return 0


def _read_page(path: Path) -> dict[str, Any]:
    """Return, as a dictionary, the document (JSON values by section name) that an existing report page contains.

    Raises
    ------
    InputError
        If the page can't be read.
    """
    from hwgen.report.page import html

    try:
        return html.read(path.read_text(encoding="utf-8"), str(path))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise InputError(f"{path} can't be read ({reason}): give MODEL as well to recompute it") from error


def _load_design(arguments: argparse.Namespace) -> Design:
    """Load the command line's model, and return its `Design` with the plan from the result folder.

    Raises
    ------
    InputError
        If the plan can't be read, or neither the plan nor ``--board`` names a board.
    """
    from hwgen.cli import plan as common
    from hwgen.plan import document

    arguments.plan = str(Path(arguments.folder) / "plan.json")
    try:
        board = arguments.board or document.board_name(Path(arguments.plan).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise InputError(
            f"{arguments.plan} can't be read ({reason}): give a folder that 'hwgen build' wrote"
        ) from error
    if board is None:
        raise InputError(f"{arguments.plan} does not name a board: give --board")
    return common.load(arguments).plan(board, plan=arguments.plan)
