"""Requantisers in Verilator: millions of accumulators through the emitted Verilog, and products next to ties."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from amaranth.back import verilog
from amaranth.hdl import Const, Value
from amaranth.lib import wiring
from texts import read_text

from hwgen.gateware.requantise import Requantise, RequantiseConfig
from hwgen.simulate import verilator

# Verilator writes two underscores in a row as ___05F.
DRIVER = read_text("requantisers_driver.cpp")


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


SIGNIFICAND = 24


@dataclass(frozen=True)
class Pairs:
    """Accumulators, int64 ``(n,)``, and significands and shifts of the factors they meet."""

    totals: np.ndarray
    significands: np.ndarray
    shifts: np.ndarray

    def __len__(self) -> int:
        return len(self.totals)

    @property
    def factors(self) -> np.ndarray:
        """float32, exactly."""
        return np.ldexp(self.significands.astype(np.float32), -self.shifts.astype(np.int32))

    def __getitem__(self, chosen: np.ndarray) -> Pairs:
        return Pairs(self.totals[chosen], self.significands[chosen], self.shifts[chosen])


def join(*many: Pairs) -> Pairs:
    fields = ([getattr(pairs, name) for pairs in many] for name in ("totals", "significands", "shifts"))
    return Pairs(*map(np.concatenate, fields))


def by_float32(pairs: Pairs) -> np.ndarray:
    """Return the products of the pairs in NumPy's float32, rounded to int64."""
    return np.rint(pairs.totals.astype(np.float32) * pairs.factors).astype(np.int64)


def beside(rng: np.random.Generator, count: int, bits: tuple[int, int], most: int = 256) -> Pairs:
    """Accumulators of ``bits[0]`` to ``bits[1]`` bits; ties from 1/2 to ``most``; both signs."""
    width = rng.integers(bits[0], bits[1] + 1, count)
    totals = rng.integers(1 << (width - 1), 1 << width)
    # Every binade is as likely as any other.
    reach = rng.integers(0, most.bit_length(), count)
    lower = np.minimum(rng.integers(1 << reach >> 1, 1 << reach), most - 1)
    # The factor is (2 * lower + 1) / (2 * total), between 2**23 and 2**24 once it is shifted.
    ratio = (2 * lower + 1) / (2 * totals)
    shifts = SIGNIFICAND - np.frexp(ratio)[1]
    significands = np.rint(np.ldexp(ratio, shifts)).astype(np.int64) + rng.choice([-1, 0, 0, 0, 0, 1], count)
    shifts = np.where(significands >> SIGNIFICAND, shifts - 1, shifts)
    significands = np.clip(significands, 1 << 23, (1 << 24) - 1)
    return Pairs(totals * rng.choice([-1, 1], count), significands, shifts.astype(np.int64))


def at_ends(rng: np.random.Generator, count: int, most: int = 256) -> Pairs:
    """Products exactly half a float32 step from a tie, above and below it; accumulators below 2**24."""
    totals, significands, shifts = [], [], []
    while len(totals) < count:
        lower = int(rng.integers(1, most))
        place = SIGNIFICAND - lower.bit_length()  # of 1/2 of a product of 25 bits: lower < 2**(25 - place)
        product = ((2 * lower + 1) << place) + int(rng.choice([-1, 1]))
        divisors = [odd for odd in range(3, 2000, 2) if product % odd == 0 and product // odd < 1 << SIGNIFICAND]
        if not divisors:
            continue
        odd = int(rng.choice(divisors))
        significand = product // odd
        zeros = SIGNIFICAND - significand.bit_length()
        more = int(rng.integers(0, SIGNIFICAND - odd.bit_length() + 1))
        totals.append(int(rng.choice([-1, 1])) * odd << more)
        significands.append(significand << zeros)
        shifts.append(place + 1 + zeros + more)
    return Pairs(np.array(totals), np.array(significands), np.array(shifts))
