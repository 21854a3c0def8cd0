"""Lines of observers of pipelines: delayed values, and the number of cycles after which a pipeline forgot its past."""

from __future__ import annotations

from hwgen.prove.site import bits_for

__all__ = ["age", "delayed", "is_old"]


def age(cycles: int) -> list[str]:
    """Return lines of Verilog that count cycles since the reset, up to ``cycles``."""
    return [
        f"reg {bits_for(cycles)} age = 0;",
        f"always @(posedge clk) age <= rst ? 0 : age + (age != {cycles});",
    ]


def is_old(cycles: int) -> str:
    """Return the Verilog condition that `age` counted ``cycles`` cycles."""
    return f"(age == {cycles})"


def delayed(name: str, width: int, value: str, cycles: int, *, resets: bool = False) -> list[str]:
    """Return lines of Verilog that delay a value of ``width`` bits by ``cycles`` cycles, which can be 0: ``NAME_was``.

    With ``resets``, the values of cycles before a reset become 0.
    """
    if cycles == 0:
        return [f"wire [{width - 1}:0] {name}_was = {value};"]
    older = f"{{{name}_past[{width * (cycles - 1) - 1}:0], {value}}}" if cycles > 1 else value
    return [
        f"reg [{width * cycles - 1}:0] {name}_past = 0;",
        f"always @(posedge clk) {name}_past <= {f'rst ? 0 : {older}' if resets else older};",
        f"wire [{width - 1}:0] {name}_was = {name}_past[{width * cycles - 1}:{width * (cycles - 1)}];",
    ]
