"""Every port of every instance is covered by an obligation, or named as not covered; so is every component."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import small_circuits
from port_cover import PortCover
from proofs import chain, residual

import hwgen
from hwgen.gateware import multiply_proof
from hwgen.gateware.multiply import MultiplyConfig
from hwgen.obligations.modules import modules_of
from hwgen.prove import catalogue, coverage
from hwgen.verilog.emitted import files

Design = tuple[Any, str, str]


def planned(model: str, board: str, **options: Any) -> Design:
    """Return the accelerator that hwgen plans for a model."""
    config = hwgen.load(model).plan(board=board, **options).config
    return config, "dut", files(config, top="dut")["dut.v"].decode()


def small(config: Any, verilog: str) -> Design:
    return config, "dut", verilog


#: Designs by name; the default run has the first ones, which take seconds.
DESIGNS: dict[str, Callable[[], Design]] = {
    "chain": lambda: small(*chain()),
    "chain, a channel in LUTs": lambda: small(*chain(lut_lanes=1)),
    "select": small_circuits.select,
    "blocks": small_circuits.depth_to_space,
    "tiles": small_circuits.tiles,
    "residual": lambda: small(*residual()),
    "chain, retrained": lambda: small(*chain(runtime=True)),
    "running scale": small_circuits.response_normalisation,
    "engine": small_circuits.DESIGNS["engine"],
    "engine that keeps maps": small_circuits.DESIGNS["engine that keeps maps"],
    **{
        f"{model} on {board}": partial(planned, model, board)
        for model, board in (
            ("decoilfnet-example", "zedboard"),
            ("lenet5", "zedboard"),
            ("lenet5", "kv260"),
            ("vgg16:4@16x16", "vc709"),
            ("speed-sign@48x48", "zedboard"),
            ("resnet8", "zedboard"),
            ("resnet8@16x16", "kv260"),
            ("dscnn", "zedboard"),
            ("mobilenetv2:12@32x32", "kv260"),
            ("autoencoder", "zedboard"),
            ("unet@16x16", "kv260"),
            ("squeezenet:12@32x32", "kv260"),
        )
    },
    "resnet8 with dsp alone": partial(planned, "resnet8@16x16", "kv260", multipliers="dsp"),
    "vgg16 in tiles": partial(planned, "vgg16:4@16x16", "vc709", template="pyramid"),
    "alexnet in tiles": partial(planned, "alexnet-set@51x51", "vc709", template="pyramid"),
}
QUICK = ("chain", "chain, a channel in LUTs", "select", "blocks", "tiles")


def covered(config: Any, top: str, verilog: str) -> tuple[PortCover, dict[str, coverage.Covered]]:
    """Return what the obligations of a design cover: its ports, and its instances by path."""
    modules, ports = modules_of(verilog), PortCover(top, verilog)
    sites = list(catalogue.sites(config, top, modules))
    stated = [obligation for part, site in sites for obligation in catalogue.of_component(part, site)]
    for obligation in stated:
        ports.cover(obligation)
    reasons = {name: text for part, site in sites for name, text in coverage.reasons_of(part, site).items()}
    return ports, {each.path: each for each in coverage.coverage(top, modules, stated, reasons)}


def unstated(design: Design) -> list[str]:
    """Return the ports that no property depends on and no reason names, and the instances without a reason."""
    ports, instances = covered(*design)
    unknown = [path for path, instance in instances.items() if instance.reason == coverage.UNKNOWN]
    return [
        *unknown,
        *(
            f"{path}.{port}{bits}"
            for (path, port), bits in ports.missing().items()
            if not instances[path].reason
            and not (path and instances[path.rpartition(".")[0]].reason)
            and port not in instances[path].ports
        ),
    ]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.long) for name in DESIGNS]
)
def test_every_port_is_covered_or_named(name):
    assert unstated(DESIGNS[name]()) == []


def test_the_connections_of_arithmetic_are_needed(monkeypatch):
    """Without them no obligation says what the arithmetic's chains get, and what leaves it."""
    kinds = catalogue.CATALOGUE[MultiplyConfig]
    fewer = tuple(kind for kind in kinds if kind is not multiply_proof.connections)
    monkeypatch.setitem(catalogue.CATALOGUE, MultiplyConfig, fewer)
    ports, _ = covered(*DESIGNS["chain"]())
    assert {("conv.compute", "o__payload"), ("conv.compute.chains", "i__payload")} <= set(ports.missing())
