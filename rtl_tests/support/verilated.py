"""Requantisers in Verilator: millions of accumulators through the emitted Verilog."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from amaranth.back import verilog
from amaranth.hdl import Const, Value
from amaranth.lib import wiring

from hwgen.gateware.requantise import Requantise, RequantiseConfig
from hwgen.simulate import verilator

# Verilator writes two underscores in a row as ___05F.
DRIVER = """
#include <cstdint>
#include <cstdio>
#include <vector>
#include "Vtop.h"

int main() {
    Vtop top;
    std::FILE *source = std::fopen("input.bin", "rb"), *sink = std::fopen("output.bin", "wb");
    std::vector<uint64_t> beats(1 << 16);
    std::vector<uint32_t> taken;
    auto cycle = [&] {
        top.clk = 0; top.eval();
        if (top.o___05Fvalid) taken.push_back(top.o___05Fpayload);
        top.clk = 1; top.eval();
    };
    top.i___05Fvalid = 0; top.rst = 1; cycle(); top.rst = 0; cycle();
    while (size_t count = std::fread(beats.data(), 8, beats.size(), source)) {
        top.i___05Fvalid = 1;
        for (size_t n = 0; n < count; ++n) { top.i___05Fpayload = beats[n]; cycle(); }
        top.i___05Fvalid = 0;
        for (int n = 0; n < 40; ++n) cycle();
        std::fwrite(taken.data(), 4, taken.size(), sink);
        taken.clear();
    }
    std::fclose(sink);
}
"""


def requantise(config: RequantiseConfig, accumulators: np.ndarray, folder: Path) -> np.ndarray:
    """Return outputs, int64 ``(n,)``, of a requantiser with one lane for ``accumulators`` ``(n,)``, one per beat."""
    build(Requantise(config), DRIVER, folder)
    mask = (1 << config.accumulator_bits) - 1
    outputs = run((accumulators.astype(np.int64) & mask).astype("<u8"), folder)
    return outputs - ((outputs >> (config.bits - 1)) << config.bits) * config.signed


def build(component: wiring.Component, driver: str, folder: Path) -> None:
    """Verilate ``component`` with a C++ ``driver``, which reads ``input.bin`` and writes ``output.bin``."""
    ports = [Value.cast(port) for _, _, port in component.signature.flatten(component)]
    ports = [port for port in ports if not isinstance(port, Const)]
    (folder / "top.v").write_text(verilog.convert(component, name="top", emit_src=False, ports=ports))
    (folder / "driver.cpp").write_text(driver)
    root = verilator._root()
    command = [str(root / "bin" / "verilator_bin"), "--cc", "--exe", "--prefix", "Vtop", "--top-module", "top"]
    command += [
        "--no-timing",
        "-O3",
        "-CFLAGS",
        "-std=gnu++17 -DVL_TIME_CONTEXT",
        "-Wno-fatal",
        "-Wno-lint",
        "-Wno-style",
        "--Mdir",
        "obj",
        "top.v",
        "../driver.cpp",
    ]
    environment = {**os.environ, "VERILATOR_ROOT": str(root)}
    environment.pop("MAKEFLAGS", None)
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    make = ["make", "-s", "-C", "obj", "-f", "Vtop.mk", "Vtop", "OPT_FAST=-O1 -march=native", "OPT_SLOW=-O0"]
    subprocess.run([*make, f"PYTHON3={sys.executable}"], cwd=folder, env=environment, check=True, capture_output=True)


def run(beats: np.ndarray, folder: Path) -> np.ndarray:
    """Run the compiled driver on ``beats``, and return its output, int64 of unsigned 32-bit words."""
    beats.tofile(folder / "input.bin")
    subprocess.run([folder / "obj" / "Vtop"], cwd=folder, check=True)
    return np.fromfile(folder / "output.bin", "<u4").astype(np.int64)
