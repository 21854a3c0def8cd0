"""Proofs of an engine's units and of what connects them, and faults seeded in their Verilog that they must refute."""

import re
from dataclasses import replace

import pytest
from programs import SMALL, behind
from proofs import ALONE, MODULE, Fault, emitted, engine, faults_in, kinds_of, marked, of_component, proved, with_fault

from hwgen.gateware.engine.add import TableAddConfig
from hwgen.gateware.engine.map_product import MapProductConfig
from hwgen.obligations.modules import modules_of

pytestmark = ALONE

TOP, MEMORY, CORE = "", "memory_side", "core"
CHECK = "memory_side.check"
KEPT_MAPS, LOAD = "memory_side.map_memory", "memory_side.load"
QUEUES = [f"memory_side.fetch.{name}_queue" for name in ("load", "compute", "drain", "store")]
#: Kinds of obligations of each component of the compute core and the check of jobs, by its path.
SEQUENCERS = {
    CHECK: {"rules", "tokens", "wires"},
    CORE: {"wires", "logic", "contract", "credits", "tokens"},
    "core.steps": {"path", "occupancy", "tokens", "progress"},
    "core.drains": {"path", "stream", "occupancy", "tokens", "progress"},
}
#: The same of the engine's memory side.
UNITS = {
    MEMORY: {"wires", "logic"},
    "memory_side.port": {"bus", "path", "contract"},
    "memory_side.port.reads": {"tokens"},
    "memory_side.port.writes": {"tokens"},
    "memory_side.fetch": {"stream", "path", "bus", "occupancy", "tokens", "wires"},
    **{path: {"stream", "path", "tokens"} for path in QUEUES},
    LOAD: {"stream", "path", "bus", "contract"},
    "memory_side.load.bursts": {"stream", "path", "bus", "tokens"},
    "memory_side.store": {"stream", "path", "bus", "wires", "tokens"},
    "memory_side.store.bursts": {"stream", "path", "bus", "tokens"},
    "memory_side.store.granted": {"tokens"},
    "memory_side.store.words": {"tokens"},
}
#: Paths of units whose circuits are those of other units, which have the faults.
SAME = {
    "memory_side.port.writes": "memory_side.port.reads",
    "memory_side.store.granted": "memory_side.port.reads",
    "memory_side.store.words": "memory_side.port.reads",
    "memory_side.load.bursts": "memory_side.store.bursts",
    **dict.fromkeys(QUEUES[1:], QUEUES[0]),
}
ENGINES = {
    "SMALL": SMALL,
    "KEPT": replace(SMALL, kept_words=4096),  # two banks of a map memory
    "CORES": replace(SMALL, cores=4),
    "WIDE": replace(SMALL, maps=16, requantisers=16),  # two blocks of maps, and two pixels a beat
}
KEPT, CORES, WIDE = ENGINES["KEPT"], ENGINES["CORES"], ENGINES["WIDE"]
#: Engine, path of the component, kind of obligation, and where there are others: the module, and part of the statement.
FAULTS = {
    name: Fault(path, kind, old, new, *more, engine=config)
    for name, (config, path, kind, *more, old, new) in faults_in("engine.txt", ENGINES.__getitem__).items()
}


def unproved(proofs):
    return {name: proof.verdict for name, proof in proofs.items() if proof.verdict.result != "proved"}


def test_each_component_emits_its_kinds():
    _, found = engine(SMALL)
    kinds = kinds_of(found)
    memory_side = {path for path in kinds if path.startswith(MEMORY) and not path.startswith(CHECK)}
    assert {path: kinds[path] for path in memory_side} == UNITS
    assert {path: kinds[path] for path in SEQUENCERS} == SEQUENCERS
    assert {"wires", "logic"} <= kinds[TOP]
    assert all("reset" in {obligation.kind for obligation in found[path]} for path in SEQUENCERS)


def test_each_kind_of_each_component_has_two_faults():
    for path, kinds in {TOP: {"wires", "logic"}, **UNITS, **SEQUENCERS}.items():
        for kind in kinds:
            wanted = (SMALL, SAME.get(path, path), kind)
            guards = [name for name, fault in FAULTS.items() if (fault.engine, fault.path, fault.kind) == wanted]
            assert len(guards) >= 2, (path, kind)


@pytest.mark.long
@pytest.mark.parametrize("name", FAULTS, ids=lambda name: name.replace(": ", "-").replace(" ", "-"))
def test_faults_are_refuted(name):
    assert "refuted" in FAULTS[name].results()


@pytest.mark.long
@pytest.mark.parametrize("path", SEQUENCERS)
def test_a_reset_that_misses_a_register_is_refuted(path):
    verilog, found = engine(SMALL)
    resets = [obligation for obligation in found[path] if obligation.kind == "reset"]
    text = modules_of(verilog)[resets[0].module].text
    faulty = re.sub(r"( {8}if \(rst\) begin\n)( {12}\w+ <= \S+;\n)", r"\1", text, count=1)
    assert faulty != text
    assert {proof.verdict.result for proof in proved(resets, verilog.replace(text, faulty)).values()} == {"refuted"}


@pytest.mark.long
@pytest.mark.parametrize("bus_bytes", [4, 8, 16])
def test_the_memory_side_is_proved(bus_bytes):
    verilog, found = engine(behind(bus_bytes))
    paths = [path for path in found if path.startswith(MEMORY) and not path.startswith(CHECK)]
    assert unproved(proved([obligation for path in paths for obligation in found[path]], verilog)) == {}
    assert modules_of(verilog)["engine"].instances[MEMORY] == "engine_memory_side"


@pytest.mark.long
def test_the_core_and_the_check_are_proved():
    verilog, found = engine(SMALL)
    assert unproved(proved([obligation for path in SEQUENCERS for obligation in found[path]], verilog)) == {}


@pytest.mark.long
@pytest.mark.parametrize(
    "config",
    [SMALL, behind(4), behind(16), behind(32), KEPT, CORES],
    ids=["8 bytes", "4 bytes", "16 bytes", "32 bytes", "map memory", "cores"],
)
def test_connections_are_proved(config):
    verilog, found = engine(config)
    kinds = {TOP: {"wires", "logic"}, MEMORY: {"wires", "logic"}, CORE: {"wires", "logic", "contract"}}
    connections = [obligation for path in kinds for obligation in found[path] if obligation.kind in kinds[path]]
    assert unproved(proved(connections, verilog)) == {}


@pytest.mark.long
def test_each_component_of_a_variant_emits_its_kinds():
    kept, dealt = (kinds_of(engine(config)[1]) for config in (KEPT, CORES))
    assert kept[KEPT_MAPS] == {"contract", "tokens", "wires"}
    assert kept[f"{KEPT_MAPS}.bursts"] == {"tokens"}
    assert kept["memory_side.load_kept"] == {"stream", "path", "bus", "contract"}
    assert dealt[LOAD] == {"stream", "path", "bus", "contract", "tokens"}


@pytest.mark.long
@pytest.mark.parametrize("config", [WIDE, CORES, replace(SMALL, maps=32, requantisers=32)])
def test_beats_of_wide_cores_are_proved(config):
    verilog, found = engine(config)
    beats = [obligation for obligation in found["core"] if obligation.kind == "tokens"]
    assert {proof.verdict.result for proof in proved(beats, verilog).values()} == {"proved"}


@pytest.mark.long
@pytest.mark.parametrize(
    ("config", "paths"), [(KEPT, (KEPT_MAPS, "memory_side.load_kept")), (CORES, (LOAD,))], ids=["map memory", "cores"]
)
def test_variants_are_proved(config, paths):
    verilog, found = engine(config)
    obligations = [obligation for path in found if path.startswith(paths) for obligation in found[path]]
    assert unproved(proved(obligations, verilog)) == {}


PRODUCT, SUM = MapProductConfig(lanes=2), TableAddConfig(lanes=2)
#: Products and sums of two maps: component, begin of the statement that refutes a fault, text, and faulty text.
FAULTS_OF_TWO_MAPS = {
    "a zero point is added": (PRODUCT, "Each value", "$signed(first[7:0]) - ", "$signed(first[7:0]) + "),
    "a value is another lane's": (PRODUCT, "Each value", "$signed(second[15:8])", "$signed(second[7:0])"),
    "a sign is left out": (PRODUCT, "The outputs", "cycle_2_1 <= second_1[8]", "cycle_2_1 <= 1'b0"),
    "a digit is another": (PRODUCT, "The outputs", ".digit(second_0[3:1])", ".digit({second_0[3:2], 1'b0})"),
    "a share is left out": (SUM, "The sum", "sum_1 <= $signed(share_1_0_value) + ", "sum_1 <= "),
    "a tie is not rounded up": (SUM, "The sum", ">= rounding_0_value", "> rounding_0_value"),
}


def test_each_obligation_of_two_maps_has_two_faults():
    begins = [begin for _, begin, _, _ in FAULTS_OF_TWO_MAPS.values()]
    for config in (PRODUCT, SUM):
        for obligation in of_component(config, emitted(config)):
            if obligation.kind != "reset":
                assert sum(obligation.statement.startswith(begin) for begin in begins) >= 2, obligation.statement


@pytest.mark.parametrize("name", marked(FAULTS_OF_TWO_MAPS, "a tie is not rounded up"))
def test_faults_of_two_maps_are_refuted(name):
    config, begin, old, new = FAULTS_OF_TWO_MAPS[name]
    verilog = with_fault(emitted(config), MODULE, old, new)
    affected = [obligation for obligation in of_component(config, verilog) if obligation.statement.startswith(begin)]
    assert {proof.verdict.result for proof in proved(affected, verilog).values()} == {"refuted"}


@pytest.mark.long
@pytest.mark.parametrize("config", [PRODUCT, SUM])
def test_products_and_sums_of_two_maps_are_proved(config):
    assert unproved(proved(of_component(config, emitted(config)), emitted(config))) == {}
