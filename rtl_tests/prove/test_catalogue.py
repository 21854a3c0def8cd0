"""Which obligations each class of component must emit, and those of whole designs; the file of obligations."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
import typing
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import obligations
import pytest
import small_circuits
from amaranth import Module
from amaranth.lib import wiring
from needs import needs_abc
from proofs import MODULE, chain, emitted, of_component, proved, wrapped_chain
from small_circuits import DESIGNS, FIFO, JOIN, UPSAMPLING
from tiles import pools
from unchanged import differences

import hwgen.gateware
from hwgen.errors import InputError
from hwgen.fields import written
from hwgen.gateware import fifo_proof
from hwgen.gateware.component import ConfiguredComponent
from hwgen.gateware.fifo import FifoConfig
from hwgen.gateware.load.distribute import DistributeConfig
from hwgen.gateware.load.loaded_memory import LoadedMemory
from hwgen.gateware.load.loader import LoaderConfig
from hwgen.obligations import obligation
from hwgen.obligations.modules import modules_of
from hwgen.obligations.obligation import Proofs, Site
from hwgen.prove import catalogue
from hwgen.prove.methods.registry import METHODS
from hwgen.prove.wrapper import wrapped
from hwgen.verilog.emitted import files

#: Parts of an engine, whose obligations `test_engine_*` check.
ENGINE = (
    "BoundConfig", "BurstUnitConfig", "CheckUnit", "ChecksumUnit", "CoreConfig", "DrainControllerConfig",
    "EngineDesign", "FetchUnitConfig", "LoadUnitConfig", "MapMemoryConfig", "MapProductConfig", "MemorySideConfig",
    "PartQueueUnit", "PortUnitConfig", "QueueConfig", "ScaleConfig", "StepSequencerConfig", "StoreUnitConfig",
    "TableAddConfig",
)  # fmt: skip
#: Layers whose windows have no model yet, so that their credits are not proved.
WIRED = ("CollectLayerConfig", "ReorderLayerConfig", "ResampleLayerConfig", "RunningScaleLayerConfig")
#: Components that tests of their own check.
ALONE = ("DistributeConfig", "JoinConfig", "LoaderConfig", "UpsampleConfig")
#: Arithmetic of layers without weights, whose obligations `test_elementwise` proves.
ARITHMETIC = tuple(sorted({type(config).__name__ for config in small_circuits.ARITHMETIC}))
#: Parts of layers that compute tile by tile, and these layers without convolutions.
TILED = ("PyramidBufferConfig", "PyramidLayerConfig", "PyramidReuseBufferConfig", "WindowUnit")
#: Kinds of obligations by class of configuration: what a proof of a whole network is composed of. A class that is left
#: out of the catalogue, or a kind that is left out of a class, fails.
KINDS = {
    "BoundConfig": {"bound", "reset"},
    "ScaleConfig": {"scale", "reset"},
    "BurstUnitConfig": {"stream", "path", "bus", "tokens", "reset"},
    "CheckUnit": {"rules", "tokens", "wires", "reset"},
    "ChecksumUnit": {"checksum", "reset"},
    "CoreConfig": {"wires", "logic", "contract", "credits", "tokens", "reset"},
    "DrainControllerConfig": {"path", "stream", "occupancy", "tokens", "progress", "reset"},
    "StepSequencerConfig": {"path", "occupancy", "tokens", "progress", "reset"},
    "DistributeConfig": {"tokens", "reset"},
    "MapProductConfig": {"elementwise", "reset"},
    "TableAddConfig": {"elementwise", "reset"},
    "MapMemoryConfig": {"contract", "tokens", "wires", "reset"},
    "FetchUnitConfig": {"stream", "path", "bus", "occupancy", "tokens", "wires", "reset"},
    "LoadUnitConfig": {"stream", "path", "bus", "contract", "reset"},
    "EngineDesign": {"wires", "logic", "reset"},
    "MemorySideConfig": {"wires", "logic", "reset"},
    "PortUnitConfig": {"bus", "path", "contract", "reset"},
    "PartQueueUnit": {"stream", "path", "tokens", "reset"},
    "QueueConfig": {"tokens", "reset"},
    "StoreUnitConfig": {"stream", "path", "bus", "wires", "tokens", "reset"},
    "AcceleratorConfig": {"wires"},
    "BankConfig": {"bus", "path", "registers", "reset"},
    "GuardConfig": {"stream", "path", "tokens", "progress", "reset"},
    "MultiplyConfig": {"dot", "sum", "weights", "wires"},
    "LayerConfig": {"wires", "contract", "credits", "requantise", "index", "reset"},
    "FifoConfig": {"stream", "path", "occupancy", "tokens", "last", "schedule", "reset"},
    "JoinConfig": {"tokens", "progress", "reset"},
    "UpsampleConfig": {"tokens", "progress", "reset"},
    "LoaderConfig": {"tokens", "wires", "reset"},
    "LineBufferConfig": {"occupancy", "tokens", "bits", "schedule", "reset"},
    "PyramidBufferConfig": {"occupancy", "tokens", "bits", "schedule", "reset"},
    "PyramidReuseBufferConfig": {"stream", "path", "occupancy", "tokens", "bits", "schedule", "reset"},
    "PyramidLayerConfig": {"wires", "contract", "credits", "reset"},
    "WindowUnit": {"wires"},
    "RegroupConfig": {"stream", "path", "occupancy", "tokens", "bits", "schedule", "reset"},
    "RepackConfig": {"stream", "path", "occupancy", "tokens", "progress", "reset"},
    "ShellConfig": {"bus", "path", "wires", "logic", "last", "registers", "contract", "reset"},
    "UnloadConfig": {"occupancy", "tokens", "bits", "reset"},
    "MaxPoolConfig": {"pool"},
    "SumConfig": {"pool"},
    "FloatSumConfig": {"pool"},
    "FloatJoinConfig": {"elementwise"},
    "RunningSumConfig": {"pool"},
    "TableSumConfig": {"elementwise"},
    "ProductConfig": {"elementwise"},
    "ExtremeConfig": {"elementwise"},
    "RecodeConfig": {"elementwise"},
    "ChannelTableConfig": {"elementwise", "index"},
    "FixedPointConfig": {"elementwise", "index"},
    "WholeMapConfig": {"tokens", "reset"},
    "WrapperUnit": {"wires", "logic"},
    **{name: {"wires"} for name in WIRED},
}


def test_each_class_is_in_the_table():
    assert {each.__name__ for each, proofs in catalogue.CATALOGUE.items() if proofs.kinds} == set(KINDS)


def components() -> set[type[wiring.Component]]:
    """Return the classes of all components in the code of `hwgen.gateware`, without those that only serve as bases."""
    for module in pkgutil.walk_packages(hwgen.gateware.__path__, "hwgen.gateware."):
        importlib.import_module(module.name)
    found, ahead = set(), [wiring.Component]
    while ahead:
        ahead += (classes := ahead.pop().__subclasses__())
        found |= {
            each for each in classes if each.__module__.startswith("hwgen.gateware.") and not inspect.isabstract(each)
        }
    return found


def configuration_of(component: type[wiring.Component]) -> type:
    """Return the class of a component's configuration, the argument of its base class; ``object`` if it has none."""
    bases = (base for each in component.__mro__ for base in getattr(each, "__orig_bases__", ()))
    arguments = (argument for base in bases for argument in typing.get_args(base) if isinstance(argument, type))
    return next(arguments, object)


def is_stated(configuration: type) -> bool:
    """Return whether a class of configuration has obligations, or a reason why it has none."""
    proofs = catalogue.proofs_of(configuration)
    return bool(proofs.kinds or proofs.reasons)


def test_each_component_has_obligations_or_a_reason():
    found = components()
    assert len(found) > 60
    without = {each for each in found if not is_stated(configuration_of(each))}
    others = {other for proofs in catalogue.CATALOGUE.values() for other in proofs.others}
    assert {each.__name__ for each in without - others} == set()
    assert others <= without, "they have obligations of their own"
    assert all(is_stated(configuration) for configuration in catalogue.CATALOGUE)


def test_a_new_component_without_obligations_is_found():
    @dataclass(frozen=True)
    class NewConfig:
        pass

    class New(ConfiguredComponent[NewConfig]):
        def elaborate(self, platform):
            return Module()

    assert configuration_of(New) is NewConfig
    assert not is_stated(NewConfig)


def test_rules_of_stalls_name_tests_and_properties():
    """Each rule of the table names files that exist, and kinds of obligations; a rule without a kind says so."""
    root = Path(__file__).resolve().parents[2]
    table = Path(__file__).with_name("stall_rules.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 15
    for rule, simulated, proof in rows:
        paths = re.findall(r"`(rtl_tests/.*?)`", simulated)
        assert all((root / path).is_file() for path in paths), rule
        kinds = re.findall(r"`(\w+)`", proof)
        assert set(kinds) <= set.union(*KINDS.values()), rule
        assert bool(kinds) != proof.startswith("none: "), rule


def test_each_class_emits_its_kinds():
    config, verilog = chain(lut_lanes=1)
    unit, around = wrapped_chain()
    emitted_kinds = defaultdict(set)
    for part, site in (
        *catalogue.sites(config, "dut", modules_of(verilog)),
        *catalogue.sites(unit, "dut_axi", modules_of(around)),
    ):
        for base in type(part).__mro__:
            if base.__name__ in KINDS:
                emitted_kinds[base.__name__] |= {each.kind for each in catalogue.of_component(part, site)}
                break
    for found in catalogue.obligations(config, "dut", verilog):
        if found.kind == "contract":  # of the parts of a layer, which emits it
            emitted_kinds["LayerConfig"].add(found.kind)
    assert dict(emitted_kinds) == {
        name: KINDS[name]
        for name in KINDS
        if name not in {*WIRED, *ENGINE, *TILED, *ARITHMETIC, *ALONE} or name == "MaxPoolConfig"
    }


def test_a_layer_in_tiles_and_its_buffers_emit_their_kinds():
    config = pools().config
    verilog = files(config, top="dut")["dut.v"].decode()
    emitted_kinds = defaultdict(set)
    for part, site in catalogue.sites(config, "dut", modules_of(verilog)):
        if type(part).__name__ in TILED:
            emitted_kinds[type(part).__name__] |= {each.kind for each in catalogue.of_component(part, site)}
    assert dict(emitted_kinds) == {name: KINDS[name] for name in TILED}


def test_every_obligation_is_complete():
    config, verilog = chain()
    modules = modules_of(verilog)
    found = catalogue.obligations(config, "dut", verilog)
    paths = {each.path for each in found}
    assert {"", "conv", "conv.window", "conv.compute", "conv.finish", "conv.fifo", "pool.fifo", "guard_i"} <= paths
    for each in found:
        assert each.statement.endswith(".")
        assert each.methods
        assert set(each.methods) <= set(METHODS)
        assert each.structure or (each.asserts and each.cover), each
        wrapped(each, modules)  # it names ports and signals that exist


@pytest.mark.parametrize("name", DESIGNS)
def test_every_obligation_of_a_small_design_can_be_written(name):
    """Its observer has the signals that it reads, and those that its run fixes."""
    config, top, verilog = DESIGNS[name]()
    modules = modules_of(verilog)
    for each in catalogue.obligations(config, top, verilog):
        wrapped(each, modules, lambda file: "0")


def test_a_name_that_was_not_emitted_or_that_is_not_new_is_an_error():
    modules = modules_of(emitted(FIFO))
    site = Site("", modules[MODULE], modules)
    with pytest.raises(LookupError, match="has no signal height, which 'tokens' sees"):
        site.obligation("tokens", "Any.", methods=("pdr",), sees={"height": "height"})
    with pytest.raises(LookupError, match="has a signal level, which 'tokens' adds"):
        site.obligation("tokens", "Any.", methods=("pdr",), probes={"": ["wire [1:0] level = storage[0];"]})
    with pytest.raises(LookupError, match="has no instance store with a module"):
        site.obligation("tokens", "Any.", asserts={"it is stored": "store.level == 0"})
    with pytest.raises(LookupError, match="has no instance store, which 'tokens' names"):
        site.obligation("tokens", "Any.", keeps=("store",))
    with pytest.raises(LookupError, match="has no port or signal height or width"):
        site.first("height", "width")
    assert site.first("height", "level") == "level"


def test_signals_that_an_obligation_names_are_seen():
    """Those of the module by their names, and those inside by their paths; not what the observer declares."""
    _, verilog = chain()
    modules = modules_of(verilog)
    site = Site("conv", modules["dut_conv"], modules)
    stated = site.obligation(
        "tokens",
        "Any.",
        within="fifo",
        observer=("reg credits_fifo_was = 0;",),
        asserts={"beats are counted": "(level == 0) | (unload.o__valid & o__valid & credits_fifo_was)"},
    )
    assert stated.sees == {"level": "fifo.level", "at_unload_o__valid": "unload.o__valid"}
    assert stated.asserts == {"beats are counted": "(level == 0) | (at_unload_o__valid & o__valid & credits_fifo_was)"}


def test_the_file_says_what_was_emitted():
    config, verilog = chain()
    found = catalogue.obligations(config, "dut", verilog)
    content = obligation.write("dut.v", found)
    name, again, _ = obligation.read(content, "dut.proofs.json")
    assert name == "dut.v"
    assert [json.dumps(written(each)) for each in again] == [json.dumps(written(each)) for each in found]
    modules = modules_of(verilog)
    assert [wrapped(each, modules) for each in again] == [wrapped(each, modules) for each in found]


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"format": 0, "verilog": "x.v", "obligations": []}', b'{"format": 1, "obligations": [1]}']
)
def test_a_wrong_file_is_refused(content):
    with pytest.raises(InputError, match=r"^dut\.proofs\.json.*build the design again$"):
        obligation.read(content, "dut.proofs.json")


def test_obligations_of_another_verilog_are_refused():
    config = FifoConfig(lanes=1, bits=4, signed=False, beats=3, depth=3)
    verilog = emitted(config)
    found = of_component(config, verilog)
    other = verilog.replace("level", "height")
    with pytest.raises(InputError, match="has no signal level"):
        [wrapped(each, modules_of(other)) for each in found]
    with pytest.raises(InputError, match=f"module {MODULE} is not in the Verilog"):
        wrapped(found[0], {})


def test_modules_are_read_from_the_text():
    _, verilog = chain()
    modules = modules_of(verilog)
    fifo = modules["dut_conv_fifo"]
    assert {name: port.direction for name, port in fifo.ports.items()} == {
        "clk": "input",
        "rst": "input",
        "i__payload": "input",
        "i__valid": "input",
        "o__payload": "output",
        "o__valid": "output",
        "o__ready": "input",
    }
    assert fifo.ports["o__payload"].width == fifo.ports["i__payload"].width + 1 == 9
    assert modules["dut"].instances == {"conv": "dut_conv", "pool": "dut_pool", "guard_i": "dut_guard_i"}
    assert modules["dut"].connections["guard_i"]["i__valid"] == "i__valid"


def test_a_loader_emits_its_kinds():
    config = LoaderConfig(digest=5, words=3)
    assert {each.kind for each in of_component(config, emitted(config))} == KINDS["LoaderConfig"]


def test_a_link_of_run_time_weights_emits_its_kinds():
    config = DistributeConfig(stores=(LoadedMemory(name="weights", width=40, depth=3),))
    assert {each.kind for each in of_component(config, emitted(config))} == KINDS["DistributeConfig"]


@pytest.mark.parametrize("config", [JOIN, UPSAMPLING], ids=lambda config: type(config).__name__)
def test_a_component_that_moves_values_emits_its_kinds(config):
    assert {each.kind for each in of_component(config, emitted(config))} == KINDS[type(config).__name__]


@pytest.mark.parametrize("config", small_circuits.ARITHMETIC, ids=lambda config: type(config).__name__)
def test_arithmetic_emits_its_kinds(config):
    assert {each.kind for each in of_component(config, emitted(config))} == KINDS[type(config).__name__]


#: Designs that the default run plans.
QUICK = ("digits", "digits-weights-at-run-time", "vgg16-pyramid")


def marked(*quick: str) -> list:
    return [pytest.param(name, marks=() if name in quick else pytest.mark.long) for name in obligations.DESIGNS]


@pytest.mark.parametrize("name", marked(*QUICK))
def test_a_design_has_the_obligations_that_are_kept(name):
    counted = obligations.counts(obligations.DESIGNS[name])
    assert [*differences(obligations.kept(name), counted)] == []


def test_an_obligation_that_is_left_out_is_a_difference(monkeypatch):
    found = fifo_proof.obligations
    _, *others = catalogue.CATALOGUE[FifoConfig].kinds

    def fewer(config, site):
        return [each for each in found(config, site) if each.kind != "occupancy"]

    monkeypatch.setitem(catalogue.CATALOGUE, FifoConfig, Proofs((fewer, *others)))
    counted = obligations.counts(obligations.DESIGNS["digits"])
    assert [*differences(obligations.kept("digits"), counted)] == ["FifoConfig.occupancy: only before"]


def test_a_part_that_is_left_out_is_a_difference(monkeypatch):
    monkeypatch.setattr(fifo_proof, "counter_facts", lambda *_: {})
    counted = obligations.counts(obligations.DESIGNS["digits"])
    (line,) = differences(obligations.kept("digits"), counted)
    assert line.startswith("FifoConfig.occupancy: 6/18 ")
    assert " before, 6/12 " in line


@needs_abc
@pytest.mark.parametrize("name", marked())
def test_what_the_netlist_shows_is_proved(name):
    case = obligations.DESIGNS[name]
    for config, top, verilog in obligations.circuits(case.load().plan(case.board, **case.steering)):
        found = [each for each in catalogue.obligations(config, top, verilog) if each.methods == ("structure",)]
        assert found
        assert {proof.verdict.result for proof in proved(found, verilog).values()} == {"proved"}
