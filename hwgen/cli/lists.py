"""Commands ``hwgen models``, ``hwgen boards`` and ``hwgen doctor``: print lists of networks, boards and tools."""

from __future__ import annotations

import argparse


def models(arguments: argparse.Namespace) -> int:
    """Run ``hwgen models``: print the built-in networks, and return the exit status 0."""
    from hwgen.network.zoo import builtin

    entries = builtin.names()
    width = max(len(name) for name, _ in entries)
    for name, description in entries:
        print(f"{name:<{width}}  {description}")
    print(
        "Weights are random with a fixed seed. NAME:N is the first N layers; NAME@HxW has another input size (not for "
        "light_..); activations and weights have 8 bits, or 16 with ,int16 appended."
    )
    return 0


def boards(arguments: argparse.Namespace) -> int:
    """Run ``hwgen boards``: print hwgen's own boards with their resources, and return the exit status 0."""
    from hwgen.boards import load, names

    columns = f"{'LUT':>9}{'FF':>9}{'DSP':>7}{'BRAM36':>8}{'URAM':>6}{'MHz':>6}{'GB/s':>7}"
    print(f"{'board':<12}{'device':<11}{columns}  description")
    for board in map(load, names()):
        print(
            f"{board.name:<12}{board.device:<11}{board.lut:>9,}{board.ff:>9,}{board.dsp:>7,}{board.bram36:>8,}"
            f"{board.uram:>6,}{board.clock_mhz:>6g}{board.memory_gb_s:>7.2f}  {board.description}"
        )
    return 0


def doctor(arguments: argparse.Namespace) -> int:
    """Run ``hwgen doctor``: print installed and missing tools; return exit status 1 if a required one is missing."""
    from hwgen.tools import doctor as examination

    tools = examination.examine()
    print(examination.table(tools))
    return 0 if all(tool.is_installed or not tool.required for tool in tools) else 1
