"""Command ``hwgen route``: place and route a design with open tools, and make its bitstream."""

from __future__ import annotations

import argparse
from pathlib import Path

from hwgen.cli.outputs import Outputs, json_bytes
from hwgen.errors import InputError


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``hwgen route`` to a parser."""
    parser.add_argument("folder", metavar="DIR", help="a folder that 'hwgen build' wrote for an ECP5")
    parser.add_argument("--part", metavar="NAME", help="route only this layer or component (conv1, conv1.window)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the placer (default: 1)")
    parser.add_argument("--board", metavar="B", help="the board's .toml file, if it is not built in")
    parser.add_argument("--json", metavar="FILE", help="also write the figures to this file")


def run(arguments: argparse.Namespace) -> int:
    """Run ``hwgen route``, which writes a folder's bitstream, ``route.json`` and report; return the exit status.

    The status is 1 if the routed circuit does not reach the clock of the plan. There is then no bitstream: an earlier
    routing's is removed.
    """
    from hwgen.report.page import html
    from hwgen.tools import route

    if arguments.seed < 0:
        raise InputError(f"--seed must not be negative, not {arguments.seed}")
    folder = route.Folder.of(Path(arguments.folder), arguments.board)
    outputs = Outputs(arguments, folder.path)
    routing, bitstream = route.route(folder, component=arguments.part or "", seed=arguments.seed)
    figures = json_bytes(routing.to_json())
    outputs.add(arguments.json, figures)
    written = []
    if not arguments.part:
        written = [folder.path / route.NAME]
        outputs.add(str(written[0]), figures)
        page = folder.path / html.NAME
        if page.exists():
            document = html.read(page.read_text(encoding="utf-8"), str(page))
            outputs.add(str(page), html.render({**document, "routing": routing.to_json()}))
            written.append(page)
    file = folder.path / f"{folder.top}.bit"
    if bitstream is not None:
        written.append(file)
        outputs.add(str(file), bitstream)
    outputs.write()
    if not arguments.part and bitstream is None:
        file.unlink(missing_ok=True)
    print(routing.summary())
    if written:
        print(f"wrote {', '.join(map(str, written))}")
    return 0 if routing.is_met or arguments.part else 1
