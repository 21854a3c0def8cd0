"""Every port of every instance is covered by an obligation, or named as not covered; so is every component."""

from __future__ import annotations

import json
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pytest
import small_circuits
from proofs import chain, residual

import hwgen
from hwgen.gateware import multiply_proof
from hwgen.gateware.multiply import MultiplyConfig
from hwgen.obligations.modules import SYNTHESIS, modules_of
from hwgen.obligations.obligation import Obligation
from hwgen.prove import catalogue, coverage, tools
from hwgen.prove.methods.structure import BitDependencies
from hwgen.verilog.emitted import files

_NAME = re.compile(r"(?<![\w.'$])([a-zA-Z_]\w*)(?:\[(\d+)(?::(\d+))?\])?")
_DEFINED = re.compile(
    r"(?:^|;|begin|else|\))\s*(?:(?:wire|reg|integer)\s+(?:signed\s+)?(?:\[[^\]]*\]\s*)?)?(\w+)\s*(?:<=|=)(?!=)"
)
_ROUNDS = 100


class Cell:
    """Module as an instance's netlist sees it: its own cells, and instances of other modules."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        cells = document["cells"]
        primitive = {
            name for name, cell in cells.items() if cell["type"].startswith("$") and "paramod" not in cell["type"]
        }
        self.instances = {name: cell for name, cell in cells.items() if name not in primitive}
        own = {name: cell for name, cell in document["cells"].items() if name not in self.instances}
        self.netlist = BitDependencies({**document, "cells": own})
        self.nets = {name: net["bits"] for name, net in document["netnames"].items()}
        self.ports = {name: port["bits"] for name, port in document["ports"].items()}
        self.outputs = [name for name, port in document["ports"].items() if port["direction"] == "output"]
        self.inputs: dict[Any, list[tuple[str, int]]] = defaultdict(list)
        for name, bits in self.ports.items():
            for index, bit in enumerate(bits if name not in self.outputs else ()):
                self.inputs[bit].append((name, index))
        self.drivers: dict[Any, list[tuple[str, str, int]]] = defaultdict(list)
        for name, cell in self.instances.items():
            for port, bits in cell["connections"].items():
                if cell["port_directions"][port] == "output":
                    for index, bit in enumerate(bits):
                        self.drivers[bit].append((name, port, index))

    def inputs_of(self, name: str) -> Iterator[Any]:
        """Yield the bits at the inputs of an instance."""
        cell = self.instances[name]
        for port, bits in cell["connections"].items():
            if cell["port_directions"][port] == "input":
                yield from bits


class PortCover:
    """Coverage of the ports of a design's instances."""

    def __init__(self, top: str, verilog: str) -> None:
        self.top, self.modules = top, modules_of(verilog)
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            texts = [module.text for name, module in self.modules.items() if not name.endswith(SYNTHESIS)]
            text = "\n".join(texts).replace("initial $readmemh(INIT, memory);", "")  # contents do not matter
            (folder / "modules.v").write_text(text, encoding="utf-8")
            script = f"read_verilog -formal modules.v; hierarchy -top {top}; proc; opt_clean; write_json netlist.json"
            tools.yosys(script, folder, 600)
            found = json.loads((folder / "netlist.json").read_text(encoding="utf-8"))["modules"]
        self.cells = {name: Cell(document) for name, document in found.items()}
        self._at = {"": self.cells[top]}
        #: Covered bits of ports, by path of the instance and port.
        self.covered: dict[tuple[str, str], set[int]] = defaultdict(set)

    def cell_at(self, path: str) -> Cell:
        if path not in self._at:
            around, _, instance = path.rpartition(".")
            self._at[path] = self.cells[self.cell_at(around).instances[instance]["type"]]
        return self._at[path]

    @cached_property
    def paths(self) -> list[str]:
        """Paths of all instances, the top module's first."""

        def inside(path: str, cell: Cell) -> Iterator[str]:
            yield path
            for name, instance in cell.instances.items():
                yield from inside(f"{path}.{name}" if path else name, self.cells[instance["type"]])

        return list(inside("", self.cells[self.top]))

    def cover(self, obligation: Obligation) -> None:
        """Note what an obligation covers."""
        site = obligation.path
        structure = obligation.structure
        wires = {**structure.get("wires", {}), **structure.get("composition", {}).get("wires", {})}
        for port in (port for pair in wires.items() for port in pair):
            self._whole(site, port.partition("[")[0])
        if not obligation.asserts:
            return
        ahead: list[tuple[str, Any]] = []
        for name, high, low in _mentioned(obligation):
            ahead += self._seen(obligation, obligation.sees.get(name, name), high, low)
        self._follow(obligation, ahead)

    def _whole(self, site: str, port: str) -> None:
        instance, _, name = port.rpartition(".")
        path = ".".join(filter(None, (site, instance)))
        if bool(instance) != (name in self.cell_at(path).outputs):  # what leaves an instance is stated inside
            self.covered[path, name] |= set(range(len(self.cell_at(path).ports.get(name, ()))))

    def _seen(self, obligation: Obligation, signal: str, high: str, low: str) -> list[tuple[str, Any]]:
        """Return the bits that a name of the wrapper stands for, and note those of ports."""
        instance, _, name = signal.rpartition(".")
        path = ".".join(filter(None, (obligation.path, instance)))
        if path not in self.paths:
            return []
        cell = self.cell_at(path)
        bits = cell.nets.get(name, [])
        chosen = range(len(bits)) if not high else range(int(low or high), int(high) + 1)
        chosen = [index for index in chosen if index < len(bits)]
        is_cut = bool(instance) and instance not in obligation.keeps
        is_output = name in cell.outputs
        if name in cell.ports and (not is_cut if is_output else bool(instance)):
            self.covered[path, name] |= set(chosen)
        if is_cut:
            around, _, inner = path.rpartition(".")
            connections = self.cell_at(around).instances[inner]["connections"]
            return [(around, connections[name][index]) for index in chosen] if name in cell.ports else []
        return [(path, bits[index]) for index in chosen]

    def _follow(self, obligation: Obligation, ahead: list[tuple[str, Any]]) -> None:
        """Note all ports whose bits the given bits depend on, through instances that the obligation keeps."""
        seen: dict[str, set[Any]] = defaultdict(set)
        batches: dict[str, set[Any]] = defaultdict(set)
        for path, bit in ahead:
            batches[path].add(bit)
        while batches:
            path, bits = batches.popitem()
            cell = self.cell_at(path)
            new = {bit for bit in cell.netlist.support(bits, registers=True) if isinstance(bit, int | tuple)} - seen[
                path
            ]
            seen[path] |= new
            for other, bit in self._beyond(obligation, path, cell, new):
                if isinstance(bit, int) and bit not in seen[other]:
                    batches[other].add(bit)
            if path in batches and not batches[path]:
                del batches[path]

    def _beyond(self, obligation: Obligation, path: str, cell: Cell, bits: Iterable[Any]) -> Iterator[tuple[str, Any]]:
        """Yield the bits of other instances that bits of an instance depend on, and note the ports between."""
        around, _, instance = path.rpartition(".")
        for bit in bits:
            for name, port, index in cell.drivers.get(bit, ()):
                inner = f"{path}.{name}" if path else name
                relative = inner[len(obligation.path) + 1 :] if obligation.path else inner
                if relative in obligation.keeps:
                    self.covered[inner, port].add(index)
                    yield inner, self.cell_at(inner).ports[port][index]
                elif relative in obligation.models:
                    self.covered[inner, port].add(index)
                    yield from self._modelled(path, name, obligation.models[relative])
            for name, index in cell.inputs.get(bit, ()) if path != obligation.path else ():
                self.covered[path, name].add(index)
                yield around, self.cell_at(around).instances[instance]["connections"][name][index]

    def _modelled(self, path: str, name: str, body: Iterable[str]) -> list[tuple[str, Any]]:
        """Return the bits of the inputs that a model reads."""
        inner = f"{path}.{name}" if path else name
        cell, connections = self.cell_at(inner), self.cell_at(path).instances[name]["connections"]
        found = []
        for port, high, low in _NAME.findall("\n".join(body)):
            if port in cell.ports and port not in cell.outputs:
                size = len(cell.ports[port])
                for index in range(size) if not high else range(int(low or high), min(int(high) + 1, size)):
                    self.covered[inner, port].add(index)
                    found.append((path, connections[port][index]))
        return found

    def missing(self) -> dict[tuple[str, str], list[int]]:
        """Return the bits that no obligation covers: of outputs of instances, and of inputs that their outputs need."""
        lacking = {}
        for path in self.paths:
            cell = self.cell_at(path)
            for name, bits in cell.ports.items():
                if name in cell.outputs:
                    needed = set(range(len(bits)))
                elif path:
                    needed = {index for index, bit in enumerate(bits) if bit in self._live[path]}
                else:
                    continue
                if rest := sorted(needed - self.covered[path, name]):
                    lacking[path, name] = rest
        return lacking

    @cached_property
    def _live(self) -> dict[str, set[Any]]:
        """Bits of each instance that one of its outputs may depend on: all inputs of an instance count for it."""
        live = {}
        for path in self.paths:
            cell, reached, ahead = self.cell_at(path), set(), set()
            ahead |= {bit for port in cell.outputs for bit in cell.ports[port]}
            while ahead:
                new = cell.netlist.support(ahead, registers=True) - reached
                reached |= new
                names = {name for bit in new for name, _, _ in cell.drivers.get(bit, ())}
                ahead = {bit for name in names for bit in cell.inputs_of(name)} - reached
            live[path] = reached
        return live


def _mentioned(obligation: Obligation) -> set[tuple[str, str, str]]:
    """Return the names, with their first bits, that assertions read, also through lines of the observer."""
    lines = defaultdict(list)
    for line in obligation.observer:
        for name in _DEFINED.findall(line):
            lines[name].append(line)
    drives = {name: [value] for name, value in obligation.drives.items()}
    ahead, found, done = list(obligation.asserts.values()), set(), set()
    while ahead:
        for name, high, low in _NAME.findall(ahead.pop()):
            found.add((name, high, low))
            if name not in done:
                done.add(name)
                ahead += lines.get(name, []) + drives.get(name, [])
    return found


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


def covered(config: Any, top: str, verilog: str) -> tuple[PortCover, dict[str, coverage.CoveredInstance]]:
    """Return what the obligations of a design cover: its ports, and its instances by path."""
    modules, ports = modules_of(verilog), PortCover(top, verilog)
    sites = list(catalogue.sites(config, top, modules))
    stated = [obligation for part, site in sites for obligation in catalogue.of_component(part, site)]
    for obligation in stated:
        ports.cover(obligation)
    reasons = {name: text for part, site in sites for name, text in catalogue.reasons_of(part, site).items()}
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
    proofs = catalogue.CATALOGUE[MultiplyConfig]
    fewer = tuple(kind for kind in proofs.kinds if kind is not multiply_proof.connections)
    monkeypatch.setitem(catalogue.CATALOGUE, MultiplyConfig, replace(proofs, kinds=fewer))
    ports, _ = covered(*DESIGNS["chain"]())
    assert {("conv.compute", "o__payload"), ("conv.compute.chains", "i__payload")} <= set(ports.missing())
