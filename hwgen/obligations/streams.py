"""Obligations (properties to prove): output streams obey the handshake rules if the input streams do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwgen.obligations.obligation import Obligation, Site


def of_streams(config: Any, site: Site, without: str = "") -> list[Obligation]:
    """Return a list of handshake obligations, two per output stream: beats stay until accepted, and no path from ready.

    For the stream ``without``, the component states itself that beats are stable.
    """
    outputs = site.streams("output")
    return [_stable(site, name) for name in outputs if name != without] + ([_no_path(site, outputs)] if outputs else [])


def waits(site: Site, *names: str) -> tuple[str, ...]:
    """Return a tuple of lines of Verilog that remember the last beat (transfer) of each stream if it was not accepted.

    The registers are ``NAME_waits`` and ``NAME_was``.
    """
    lines = []
    for name in names:
        width = site.module.ports[f"{name}__payload"].width
        lines += [
            f"reg {name}_waits = 0;",
            f"reg [{width - 1}:0] {name}_was;",
            f"always @(posedge clk) {name}_waits <= {name}__valid & !{name}__ready & !rst;",
            f"always @(posedge clk) {name}_was <= {name}__payload;",
        ]
    return tuple(lines)


def rules(*names: str) -> dict[str, str]:
    """Return a dict of Verilog expressions by description: a stream's valid beat stays unchanged until accepted."""
    facts = {}
    for name in names:
        facts[f"{name}.valid stays until {name}.ready"] = f"!{name}_waits | {name}__valid"
        same = f"!{name}_waits | ({name}__payload == {name}_was)"
        facts[f"payload and last of {name} hold until {name}.ready"] = same
    return facts


def _stable(site: Site, name: str) -> Obligation:
    inputs = site.streams("input")
    return site.obligation(
        "stream",
        f"A valid beat on {name} stays valid and unchanged until it is accepted.",
        methods=("pdr",),
        observer=waits(site, name, *inputs),
        assumes=rules(*inputs),
        asserts=rules(name),
        cover=f"{name}_waits & {name}__valid & !rst",
        keeps=site.memories,
        free_memories=True,
    )


def _no_path(site: Site, outputs: list[str]) -> Obligation:
    ready = [f"{name}__ready" for name in outputs]
    offered = [f"{name}__{part}" for name in outputs for part in ("valid", "payload")]
    return no_path(site, f"{', '.join(ready)} to {', '.join(offered)}", ready, offered, site.memories)


def no_path(
    site: Site, ends: str, sources: Sequence[str], sinks: Sequence[str], keeps: tuple[str, ...] = ()
) -> Obligation:
    """Return the `Obligation`: no combinational path leads from ``sources`` to ``sinks``; ``ends`` says it in words."""
    statement, structure = f"No combinational path leads from {ends}.", {"from": list(sources), "to": list(sinks)}
    return site.obligation("path", statement, methods=("structure",), keeps=keeps, structure={"no_path": structure})


def bits_of_values(site: Site, bits: int, received: int, sent: int) -> Obligation:
    """Return the `Obligation`: bit n of each output value depends only on bits n of input values."""
    return site.obligation(
        "bits",
        "Bit n of a value depends on bits n of the values that come, and valid, ready and last on none.",
        methods=("structure",),
        structure={"bits": {"width": bits, "from": ["i__payload", received], "to": ["o__payload", sent]}},
        keeps=site.memories,
    )


def held(
    channel: str, valid: str, ready: str, values: dict[str, int], reset: str = "rst"
) -> tuple[list[str], dict[str, str]]:
    """Return a pair: Verilog lines, and a dict of assertions that a channel's transfer stays equal until accepted.

    Parameters
    ----------
    channel : str
        Name of the channel, and prefix of the names of the observer's registers.
    valid, ready : str
        Verilog expressions of the handshake.
    values : dict of str to int
        Widths of the signals that must not change until then, by name.
    reset : str
        Verilog expression of a reset, which withdraws the transfer.
    """
    lines = [
        f"reg {channel}_waits = 0;",
        f"always @(posedge clk) {channel}_waits <= {valid} & !{ready} & !({reset});",
    ]
    facts = {f"{channel} stays valid until it is accepted": f"!{channel}_waits | {valid}"}
    for name, width in values.items():
        lines += [f"reg [{width - 1}:0] {name}_was;", f"always @(posedge clk) {name}_was <= {name};"]
        facts[f"{name} is stable until it is accepted"] = f"!{channel}_waits | ({name} == {name}_was)"
    return lines, facts
