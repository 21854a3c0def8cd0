"""Random circuits in Amaranth: every operator, registers under nested conditions, memories, wires in parts."""

from __future__ import annotations

from random import Random

from amaranth import Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

INPUTS = {"a": unsigned(5), "b": signed(6), "c": unsigned(1), "d": signed(9), "e": unsigned(8), "f": signed(1)}
WIDEST = 24


class RandomCircuit(wiring.Component):
    """Inputs of `INPUTS`, and ``outputs`` outputs of any width that depend on them, at once or later."""

    def __init__(self, seed: int, outputs: int = 12):
        self.seed = seed
        random = Random(seed)
        shapes = [random.choice((signed, unsigned))(random.randint(1, 20)) for _ in range(outputs)]
        super().__init__(
            {name: In(shape) for name, shape in INPUTS.items()}
            | {f"out_{number}": Out(shape) for number, shape in enumerate(shapes)}
        )

    def elaborate(self, platform):
        m = Module()
        random = Random(self.seed + 1)
        leaves: list[Value] = [getattr(self, name) for name in INPUTS]
        registers = []
        for number in range(8):
            shape, init = random.choice((signed, unsigned))(random.randint(1, 12)), random.randint(0, 1)
            init = -init if shape == signed(1) else init
            registers.append(Signal(shape, init=init, name=f"state_{number}"))
        leaves += registers
        for number in range(4):
            leaves.append(self._memory(m, random, leaves, number))
        for number in range(6):  # wires that the circuit names
            wire = Signal(random.randint(1, 14), name=f"wire_{number}")
            self._statements(m.d.comb, m, random, wire, leaves, 2)
            leaves.append(wire)
        for register in registers:
            self._statements(m.d.sync, m, random, register, leaves, 3)
        for name in self.signature.members:
            if name.startswith("out"):
                m.d.comb += getattr(self, name).eq(expression(random, leaves, 4))
        return m

    def _memory(self, m: Module, random: Random, leaves: list[Value], number: int) -> Value:
        width, depth = random.randint(1, 9), random.choice((2, 3, 8, 13))
        init = [random.getrandbits(width) for _ in range(depth)] if random.random() < 0.7 else []
        m.submodules[f"memory_{number}"] = made = memory.Memory(shape=width, depth=depth, init=init)
        if random.random() < 0.7:
            write = made.write_port(granularity=random.choice((None, 1)))
            m.d.comb += [
                write.addr.eq(address(random, leaves, depth)),
                write.data.eq(expression(random, leaves, 2)),
                write.en.eq(expression(random, leaves, 1)),
            ]
        read = made.read_port(domain=random.choice(("sync", "comb")))
        m.d.comb += read.addr.eq(address(random, leaves, depth))
        if hasattr(read, "en") and not isinstance(read.en, Const):
            m.d.comb += read.en.eq(expression(random, leaves, 1))
        # A synchronous port holds nothing in particular before the first read.
        seen = Signal(2, name=f"seen_{number}")
        m.d.sync += seen.eq(Cat(1, seen[0]))
        return Mux(seen[1], read.data, 0) if isinstance(read.en, Const) else self._known(m, read, number)

    @staticmethod
    def _known(m: Module, read, number: int) -> Value:
        known = Signal(name=f"known_{number}")
        with m.If(read.en):
            m.d.sync += known.eq(1)
        return Mux(known, read.data, 0)

    def _statements(self, domain, m: Module, random: Random, target: Signal, leaves: list[Value], depth: int) -> None:
        for _ in range(random.randint(1, 2)):
            self._statement(domain, m, random, target, leaves, depth)

    def _statement(self, domain, m: Module, random: Random, target: Signal, leaves: list[Value], depth: int) -> None:
        kind = random.random() if depth else 0
        if kind < 0.4:
            part = target
            if len(target) > 2 and random.random() < 0.3:
                low = random.randrange(len(target) - 1)
                part = target[low : random.randint(low, len(target))]
            elif len(target) > 2 and random.random() < 0.3:
                part = target.bit_select(
                    expression(random, leaves, 1).as_unsigned()[:3], random.randint(1, len(target))
                )
            domain += part.eq(expression(random, leaves, 2))
        elif kind < 0.7:
            with m.If(expression(random, leaves, 1).bool()):
                self._statements(domain, m, random, target, leaves, depth - 1)
            if random.random() < 0.5:
                with m.Elif(expression(random, leaves, 1).bool()):
                    self._statements(domain, m, random, target, leaves, depth - 1)
            if random.random() < 0.5:
                with m.Else():
                    self._statements(domain, m, random, target, leaves, depth - 1)
        else:
            test = expression(random, leaves, 1)[:3]
            with m.Switch(test):
                for _ in range(random.randint(1, 7)):
                    pattern = "".join(random.choice("01-" if random.random() < 0.3 else "01") for _ in range(len(test)))
                    with m.Case(pattern):
                        self._statements(domain, m, random, target, leaves, depth - 1)
                if random.random() < 0.5:
                    with m.Default():
                        self._statements(domain, m, random, target, leaves, depth - 1)


def address(random: Random, leaves: list[Value], depth: int) -> Value:
    """Return a random address below ``depth``, so that its word exists."""
    value = expression(random, leaves, 1).as_unsigned()
    return Mux(value < depth, value, 0)


def expression(random: Random, leaves: list[Value], depth: int) -> Value:
    """Return a random expression: any operator of any operands, at most `WIDEST` bits wide."""
    if not depth or random.random() < 0.1:
        value = random.choice(leaves)
        kind = random.random()
        if kind < 0.15:
            return Const(random.randint(-20, 40), random.choice((signed, unsigned))(random.randint(1, 9)))
        if kind < 0.35 and len(value) > 1:
            low = random.randrange(len(value))
            return value[low : random.randint(low + 1, len(value))]
        return value
    x, y, z = (expression(random, leaves, depth - 1) for _ in range(3))
    few = y.as_unsigned()[:3]
    # Behind the last bit of another signed value than a signal Amaranth's simulator has no sign, against its manual.
    parted = x if isinstance(x, Signal) else Cat(x)
    made = random.choice(
        [
            lambda: x + y,
            lambda: x - y,
            lambda: x * y,
            lambda: x & y,
            lambda: x | y,
            lambda: x ^ y,
            lambda: ~x,
            lambda: -x,
            lambda: x == y,
            lambda: x != y,
            lambda: x < y,
            lambda: x <= y,
            lambda: x > y,
            lambda: x >= y,
            lambda: (x << few)[: len(x) + 3],
            lambda: x >> few,
            lambda: Mux(z, x, y),
            lambda: Mux(z[0], x, y),
            lambda: Cat(x, y),
            lambda: x.as_unsigned() // y.as_unsigned(),
            lambda: x.as_unsigned() % y.as_unsigned(),
            lambda: Cat(x, y, z, Const(0, 8)).bit_select(few, 2),
            lambda: Cat(x, Const(0, 24)).word_select(few, 3),
            lambda: parted.bit_select(few, 5),
            lambda: parted.word_select(few, 3),
            lambda: ~(Cat(x == y, z[0]) == 2),
            lambda: ~(Mux(z[0] != y[0], x, y) != 3),
            lambda: x.any(),
            lambda: x.all(),
            lambda: x.xor(),
            lambda: x.bool(),
            lambda: x.as_signed(),
            lambda: abs(x),
            lambda: (x + 1)[: len(x)],
            lambda: (x - 1)[: len(x)],
        ]
    )()
    return made[:WIDEST] if len(made) > WIDEST else made
