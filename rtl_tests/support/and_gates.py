"""Circuits of AND gates in AIGER's binary format, and ABC, which finds the outputs that are equal for all inputs."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hwgen.prove import tools

#: Bits of random inputs that `AndGates.values` evaluates at once.
PATTERNS = 512


@dataclass(frozen=True)
class AndGates:
    """Combinational circuit of AND gates and inverters.

    A literal is twice a variable, plus one if inverted. Variable 0 is the constant 0. Inputs follow, then gates.

    Parameters
    ----------
    inputs : tuple of str
        Names of the inputs.
    gates : tuple of pair of int
        Literals of both inputs of each gate, in the order of the gates' variables.
    outputs : dict of str to int
        Literal of each output, by name.
    """

    inputs: tuple[str, ...]
    gates: tuple[tuple[int, int], ...]
    outputs: Mapping[str, int]

    @classmethod
    def read(cls, path: Path, inputs: tuple[str, ...] = (), outputs: tuple[str, ...] = ()) -> AndGates:
        """Return the circuit in a file, whose symbols name inputs and outputs unless names are given."""
        content = path.read_bytes()
        line, _, rest = content.partition(b"\n")
        _, num_inputs, num_latches, num_outputs, num_gates = map(int, line.split()[1:6])
        assert num_latches == 0, "a register in a combinational circuit"
        *words, rest = rest.split(b"\n", num_outputs)
        differences, end = _numbers(rest, 2 * num_gates)
        gates = []
        for index in range(num_gates):
            left = 2 * (num_inputs + 1 + index) - differences[2 * index]
            gates.append((left, left - differences[2 * index + 1]))
        if not (inputs or outputs):
            symbols = (line.partition(" ") for line in rest[end:].decode().splitlines())
            names = {key: name if name.endswith("]") else f"{name}[0]" for key, _, name in symbols}
            inputs = tuple(names[f"i{index}"] for index in range(num_inputs))
            outputs = tuple(names[f"o{index}"] for index in range(num_outputs))
        return cls(inputs, tuple(gates), dict(zip(outputs, map(int, words), strict=True)))

    def write(self, path: Path) -> None:
        """Write the circuit into a file, without names."""
        first = len(self.inputs) + 1
        head = f"aig {first - 1 + len(self.gates)} {len(self.inputs)} 0 {len(self.outputs)} {len(self.gates)}\n"
        content = bytearray(head.encode())
        for literal in self.outputs.values():
            content += f"{literal}\n".encode()
        for index, gate in enumerate(self.gates):
            high, low = max(gate), min(gate)
            content += _number(2 * (first + index) - high) + _number(high - low)
        path.write_bytes(content)

    def with_equal(self, inputs: Mapping[str, str]) -> AndGates:
        """Return the circuit in which each input that is a key of ``inputs`` is replaced by the input of its value."""
        indices = {name: index + 1 for index, name in enumerate(self.inputs)}
        variables = {indices[old]: indices[new] for old, new in inputs.items()}

        def moved(literal: int) -> int:
            return 2 * variables.get(literal >> 1, literal >> 1) | literal & 1

        return replace(
            self,
            gates=tuple((moved(left), moved(right)) for left, right in self.gates),
            outputs={name: moved(literal) for name, literal in self.outputs.items()},
        )

    def miter(self, sinks: Iterable[Sequence[int]]) -> AndGates:
        """Return the circuit with an output for each sink: 1 where two literals differ and a third one is 1."""
        gates, outputs = list(self.gates), {}

        def both(left: int, right: int) -> int:
            gates.append((left, right))
            return 2 * (len(self.inputs) + len(gates))

        for index, (left, right, condition) in enumerate(sinks):
            equal = both(both(left, right ^ 1) ^ 1, both(left ^ 1, right) ^ 1)
            outputs[f"sink_{index}"] = both(equal ^ 1, condition)
        return replace(self, gates=tuple(gates), outputs=outputs)

    def is_zero(self, folder: Path, seconds: float) -> bool:
        """Return whether ABC proves that all outputs are 0 for all inputs.

        Raises
        ------
        subprocess.TimeoutExpired
            If ABC takes longer than ``seconds``.
        """
        self.write(folder / "miter.aig")
        return "Networks are equivalent" in tools.abc("&r miter.aig; &cec -m -C 1000000", folder, seconds)

    def hashed(self, folder: Path, seconds: float) -> AndGates:
        """Return the circuit in which ABC has merged all gates with equal inputs.

        Raises
        ------
        subprocess.TimeoutExpired
            If ABC takes longer than ``seconds``.
        """
        return self._changed("&st", folder, seconds)

    def reduced(self, folder: Path, seconds: float) -> AndGates:
        """Return the circuit in which ABC has merged all gates that it proved equal, and inverse ones, for all inputs.

        Outputs with the same literal are equal. Equal outputs can keep different literals.

        Raises
        ------
        subprocess.TimeoutExpired
            If ABC takes longer than ``seconds``.
        """
        return self._changed("&fraig -x", folder, seconds)

    def _changed(self, command: str, folder: Path, seconds: float) -> AndGates:
        """Return the circuit after a command of ABC that keeps inputs and outputs."""
        self.write(folder / "before.aig")
        (folder / "after.aig").unlink(missing_ok=True)
        said = tools.abc(f"&r before.aig; {command}; &w after.aig", folder, seconds)
        assert (folder / "after.aig").exists(), said
        return AndGates.read(folder / "after.aig", self.inputs, tuple(self.outputs))

    def values(self, seed: int) -> dict[str, int]:
        """Return the outputs for `PATTERNS` random inputs, a bit each, by name."""
        draw = random.Random(seed)
        ones = (1 << PATTERNS) - 1
        variables = [0, *(draw.getrandbits(PATTERNS) for _ in self.inputs)]

        def value(literal: int) -> int:
            return variables[literal >> 1] ^ (ones if literal & 1 else 0)

        for left, right in self.gates:
            variables.append(value(left) & value(right))
        return {name: value(literal) for name, literal in self.outputs.items()}

    def support(self, literal: int) -> Iterator[str]:
        """Yield the names of the inputs that a literal depends on."""
        ahead, seen = [literal >> 1], {0}
        while ahead:
            variable = ahead.pop()
            if variable in seen:
                continue
            seen.add(variable)
            if variable <= len(self.inputs):
                yield self.inputs[variable - 1]
            else:
                ahead += [literal >> 1 for literal in self.gates[variable - len(self.inputs) - 1]]


def _numbers(content: bytes, count: int) -> tuple[list[int], int]:
    """Return ``count`` numbers in AIGER's format, seven bits a byte, the lowest first, and where they end."""
    numbers, position = [], 0
    for _ in range(count):
        value = shift = 0
        while (byte := content[position]) & 0x80:
            value |= (byte & 0x7F) << shift
            shift, position = shift + 7, position + 1
        numbers.append(value | byte << shift)
        position += 1
    return numbers, position


def _number(value: int) -> bytes:
    """Return a number in AIGER's format, seven bits a byte, the lowest first."""
    content = bytearray()
    while value > 0x7F:
        content.append(value & 0x7F | 0x80)
        value >>= 7
    content.append(value)
    return bytes(content)
