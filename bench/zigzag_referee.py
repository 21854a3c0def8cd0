"""zigzag-dse as a referee: the same hierarchy and loops, counted by somebody else.

zigzag has its own words: I, W, O; OX, OY columns and rows of the output, FX, FY of the window, K and C channels.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from hwgen.blocking.energy import MemoryLevel
from hwgen.blocking.problem import DIMS, Nest, Problem

NAMES = {"X": "OX", "Y": "OY", "C": "C", "K": "K", "Fw": "FX", "Fh": "FY"}
OPERANDS = {"input": ("I", "I1"), "weights": ("W", "I2"), "output": ("O", "O")}
BITS = 16


def _memory(operand: str, size: int, cost: float, served: Sequence[str], bandwidth: int) -> dict:
    """Return zigzag's description of a memory of one operand, with ``size`` in bytes and ``cost`` in pJ per word.

    The memory delivers the words of one cycle of the datapath. zigzag assumes that they stay at its pins until other
    words are needed.
    """
    name = OPERANDS[operand][1]
    reads, writes = ("tl", "fh") if operand != "output" else ("tl th", "fl fh")
    ports = [
        {
            "name": f"{kind[0]}_port_{number}",
            "type": kind,
            "bandwidth_min": BITS,
            "bandwidth_max": bandwidth,
            "allocation": [f"{name}, {way}"],
        }
        for kind, ways in (("read", reads), ("write", writes))
        for number, way in enumerate(ways.split(), start=1)
    ]
    energy = cost * bandwidth / BITS
    return {
        "size": size * 8,
        "r_cost": energy,
        "w_cost": energy,
        "area": 0,
        "latency": 1,
        "operands": [name],
        "ports": ports,
        "served_dimensions": list(served),
        "auto_cost_extraction": False,
    }


def _accelerator(memories: Mapping[str, MemoryLevel], core: int, top: float) -> dict:
    bits = {operand: BITS * core * (core if operand == "weights" else 1) for operand in memories}
    found = {
        operand: _memory(operand, memory.size, memory.energy, ["D1", "D2"], bits[operand])
        for operand, memory in memories.items()
    }
    dram_ports = [
        {
            "name": f"rw_port_{number}",
            "type": "read_write",
            "bandwidth_min": BITS,
            "bandwidth_max": BITS,
            "allocation": allocation,
        }
        for number, allocation in enumerate((["I1, tl"], ["I2, tl"], ["O, tl", "O, fl"]), start=1)
    ]
    dram = {
        "size": 1 << 40,
        "r_cost": top,
        "w_cost": top,
        "area": 0,
        "latency": 1,
        "operands": ["I1", "I2", "O"],
        "ports": dram_ports,
        "served_dimensions": ["D1", "D2"],
        "auto_cost_extraction": False,
    }
    return {
        "name": "referee",
        "memories": {**{f"{operand}_buffer": entry for operand, entry in found.items()}, "dram": dram},
        "operational_array": {
            "input_precision": [BITS, BITS],
            "unit_energy": 0,
            "unit_area": 1,
            "dimensions": ["D1", "D2"],
            "sizes": [core, core],
        },
    }


def _workload(problem: Problem) -> list[dict]:
    return [
        {
            "id": 0,
            "name": "layer",
            "operator_type": "Conv",
            "equation": "O[b][g][k][oy][ox]+=W[g][k][c][fy][fx]*I[b][g][c][iy][ix]",
            "dimension_relations": ["ix=1*ox+1*fx", "iy=1*oy+1*fy"],
            "loop_dims": ["B", "K", "G", "OX", "OY", "C", "FX", "FY"],
            "loop_sizes": [1, problem.K, 1, problem.X, problem.Y, problem.C, problem.Fw, problem.Fh],
            "operand_precision": {"W": BITS, "I": BITS, "O": BITS, "O_final": BITS},
            "operand_source": {"I": 0, "W": 0},
        }
    ]


def _ordering(nest: Nest, core: int) -> list[list]:
    """Return the loops with their trip counts, from inner to outer, without the loops of the datapath."""
    reached = {**dict.fromkeys(DIMS, 1), "C": core, "K": core}
    ordering = []
    for loop in nest.loops:
        if loop.extent > reached[loop.dim]:
            ordering.append([NAMES[loop.dim], loop.extent // reached[loop.dim]])
            reached[loop.dim] = loop.extent
    return ordering


def judge(
    problem: Problem,
    memories: Mapping[str, MemoryLevel],
    *,
    nest: Nest | None = None,
    core: int = 16,
    top: float = 320.0,
    lpf_limit: int = 6,
) -> tuple[float, dict[str, int]]:
    """Return the memory energy in pJ and the DRAM words of each operand, for ``nest`` or for zigzag's own best.

    Outputs count in both directions.
    """
    from zigzag.api import get_hardware_performance_zigzag

    mapping: dict = {
        "name": "default",
        "spatial_mapping": {"D1": [f"C, {core}"], "D2": [f"K, {core}"]},
        "memory_operand_links": {"O": "O", "W": "I2", "I": "I1"},
    }
    if nest is not None:
        mapping["temporal_ordering"] = _ordering(nest, core)
    logging.disable(logging.CRITICAL)
    here = Path.cwd()
    try:
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            os.chdir(folder)
            files = {"hardware.yaml": _accelerator(memories, core, top), "mapping.yaml": [mapping]}
            for name, content in {**files, "workload.yaml": _workload(problem)}.items():
                Path(name).write_text(yaml.safe_dump(content, sort_keys=False))
            cmes = get_hardware_performance_zigzag(
                workload="workload.yaml",
                accelerator="hardware.yaml",
                mapping="mapping.yaml",
                opt="energy",
                dump_folder="out",
                pickle_filename="out/found.pickle",
                lpf_limit=lpf_limit,
                loma_show_progress_bar=False,
            )[2]
    finally:
        os.chdir(here)
        logging.disable(logging.NOTSET)
    cost = cmes[0][1][0][0]
    words = {}
    for operand, (name, _) in OPERANDS.items():
        access = next(entry for key, entry in cost.memory_word_access.items() if str(key) == name)[-1]
        words[operand] = round(sum(access.data.values()))
    return cost.mem_energy, words
