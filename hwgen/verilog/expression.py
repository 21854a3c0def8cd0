"""Writer of Verilog expressions whose operands are all explicitly as wide as their operator.

Verilog extends and cuts operands depending on their context. The written expressions do not rely on this rule: each
operand is extended explicitly. The exception is ``$signed``, which is only written in an expression that is the whole
right side of an assignment with the width of the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hwgen.errors import InternalError
from hwgen.verilog.netlist import Multiplexer, cut, is_const, joined, value_of, width_of
from hwgen.verilog.rtlil import Cell, Sig, WireBits, unwritable

#: Maximum length of a Verilog expression within another one, in characters. A longer expression becomes a wire.
LONGEST = 80

_BINARY = {"$add": "+", "$sub": "-", "$mul": "*", "$and": "&", "$or": "|", "$xor": "^"}
_BINARY |= {"$divfloor": "/", "$modfloor": "%"}
_COMPARE = {"$eq": "==", "$ne": "!=", "$lt": "<", "$le": "<=", "$gt": ">", "$ge": ">="}
_SHIFT = {"$shl": "<<", "$shr": ">>", "$sshr": ">>>", "$shift": ">>"}
_REDUCE = {"$reduce_or": "|", "$reduce_bool": "|", "$reduce_and": "&", "$reduce_xor": "^"}
#: Set of Verilog operators that can be chained without parentheses.
_CHAINS = {"+", "&", "|", "^"}


@dataclass(frozen=True, slots=True)
class ExpressionText:
    """Text of a Verilog expression, with its outermost operator.

    ``operator`` is empty for a name, a constant or a concatenation.
    """

    text: str
    operator: str = ""

    def within(self, operator: str) -> str:
        """Return the Verilog expression as an operand of ``operator``, in parentheses if needed."""
        if not self.operator or (self.operator == operator and operator in _CHAINS):
            return self.text
        return self.text if self.operator == "!" and operator != "~" else f"({self.text})"


def const(value: int, width: int) -> str:
    """Return a Verilog constant of ``width`` bits, such as ``4'd10``.

    Large values are hexadecimal, and single bits binary.
    """
    if width == 1:
        return f"1'b{value}"
    return f"{width}'d{value}" if value < 1000 else f"{width}'h{value:x}"


def signed_const(value: int, width: int) -> str:
    """Return a signed Verilog constant, such as ``-8'sd3``, from its two's complement bits ``value``."""
    if not value >> (width - 1):
        return f"{width}'sd{value}"
    magnitude = (1 << width) - value
    return f"{width}'sh{value:x}" if value == 1 << (width - 1) else f"-{width}'sd{magnitude}"


class Expressions:
    """Writer of the Verilog expressions in one module.

    Parameters
    ----------
    operators : dict of str to Cell
        Operators of the module, by the wire that they drive.
    name : callable
        Function that returns the name of a wire. It is called only for wires that need a name.
    width : callable
        Function that returns the width of a wire in bits.
    inline : callable
        Function that returns whether an operator is written in place of its wire, as only one expression reads it.
    call : callable
        Function that returns a function call for a choice, or None if the choice is written with question marks.
    """

    def __init__(
        self,
        operators: dict[str, Cell],
        name: Callable[[str], str],
        width: Callable[[str], int],
        inline: Callable[[str], bool],
        call: Callable[[Multiplexer], str | None],
    ) -> None:
        self._operators = operators
        self._name = name
        self._width = width
        self._inline = inline
        self._call = call

    # Signals

    def operand(self, sig: Sig, width: int | None = None) -> ExpressionText:
        """Return `ExpressionText`: a netlist signal as a Verilog operand, zero-extended to ``width`` bits."""
        missing = 0 if width is None else width - width_of(sig)
        if is_const(sig):
            return ExpressionText(const(value_of(sig), max(width_of(sig) + missing, 1)))
        if missing > 0:
            sig = joined([sig, (WireBits("", 0, missing),)])
        if len(sig) != 1:
            return ExpressionText(self._concatenation(sig))
        chunk = sig[0]
        full = self._width(chunk.wire)
        if chunk.width == full and self._inline(chunk.wire):
            text = self._operator_text(self._operators[chunk.wire])
            if text is not None and len(text.text) <= LONGEST:
                return text
        return ExpressionText(selected(self._name(chunk.wire), full, chunk.low, chunk.width))

    def _concatenation(self, sig: Sig) -> str:
        parts: list[tuple[str, int]] = []
        for chunk in reversed(sig):
            text = self.operand((chunk,)).text
            if parts and parts[-1][0] == text:
                parts[-1] = text, parts[-1][1] + 1
            else:
                parts.append((text, 1))
        texts = [text if count == 1 else f"{{{count}{{{text}}}}}" for text, count in parts]
        return texts[0] if len(texts) == 1 else f"{{{', '.join(texts)}}}"

    def condition(self, sig: Sig, patterns: tuple[str, ...]) -> ExpressionText:
        """Return `ExpressionText`: true if a signal matches one of several patterns of ``0``, ``1``, ``-`` (any)."""
        matches = [self._matches(sig, pattern) for pattern in patterns]
        if len(matches) == 1:
            return matches[0]
        return ExpressionText(" | ".join(match.within("|") for match in matches), "|")

    def _matches(self, sig: Sig, pattern: str) -> ExpressionText:
        terms = []
        offset = 0
        for chunk in sig:
            bits = pattern[len(pattern) - offset - chunk.width : len(pattern) - offset]
            offset += chunk.width
            low = 0
            for run in _split_pattern(bits[::-1]):
                if "-" not in run:
                    terms.append(self._equal(cut((chunk,), low, len(run)), int(run[::-1], 2)))
                low += len(run)
        terms.reverse()
        if not terms:
            return ExpressionText("1'b1")
        return terms[0] if len(terms) == 1 else ExpressionText(" & ".join(term.within("&") for term in terms), "&")

    def _equal(self, sig: Sig, value: int) -> ExpressionText:
        width = width_of(sig)
        if width == 1:
            return self.operand(sig) if value else self._negated(sig)
        return ExpressionText(f"{self.operand(sig).within('==')} == {const(value, width)}", "==")

    def _negated(self, sig: Sig) -> ExpressionText:
        if width_of(sig) > 1:
            return ExpressionText(f"~{self.operand(sig).within('~')}", "~")
        text = self.operand(sig)
        if text.operator == "!":
            return ExpressionText(text.text[1:])
        for operator, opposite in (("==", "!="), ("!=", "==")):
            if text.operator == operator and text.text.count(f" {operator} ") == 1:  # none in an operand
                return ExpressionText(text.text.replace(f" {operator} ", f" {opposite} "), opposite)
        return ExpressionText(f"!{text.within('~')}", "!")

    # Nodes

    def right_side(self, node: Sig | Multiplexer, width: int) -> str:
        """Return a netlist node as text for the right side of a Verilog assignment to ``width`` bits."""
        if isinstance(node, Multiplexer):
            return self._choice(node).text
        if len(node) == 1 and not node[0].is_const and self._inline(node[0].wire):
            chunk = node[0]
            if chunk.width == self._width(chunk.wire) == width:
                return self.result(self._operators[chunk.wire])
        return self.operand(node, width).text

    def _choice(self, choice: Multiplexer) -> ExpressionText:
        parts = []
        if (either := self._choice_condition(choice)) is not None:
            return either
        if (call := self._call(choice)) is not None:
            return ExpressionText(call)
        for test, patterns, node in choice.arms:
            parts.append(f"{self.condition(test, patterns).within('?')} ? {self.node(node).within('?')} : ")
        return ExpressionText("".join(parts) + self.node(choice.other).text, "?")

    def node(self, node: Sig | Multiplexer) -> ExpressionText:
        """Return a netlist node as `ExpressionText` (Verilog text and its outermost operator)."""
        return self._choice(node) if isinstance(node, Multiplexer) else self.operand(node)

    def _choice_condition(self, choice: Multiplexer) -> ExpressionText | None:
        """Return `ExpressionText` of a one-bit multiplexer as a condition without ``?``; ``None`` if it needs one."""
        nodes = [node for *_, node in choice.arms if not isinstance(node, Multiplexer) and width_of(node) == 1]
        if len(nodes) < len(choice.arms) or isinstance(choice.other, Multiplexer):
            return None
        if not is_const(choice.other) or value_of(choice.other):
            return None
        test, patterns, _ = choice.arms[0]
        if len(nodes) == 1 and not is_const(nodes[0]):
            return ExpressionText(
                f"{self.condition(test, patterns).within('&')} & {self.operand(nodes[0]).within('&')}", "&"
            )
        if all(is_const(node) and value_of(node) for node in nodes) and len({test for test, *_ in choice.arms}) == 1:
            return self.condition(
                test, tuple(pattern for _, arm_patterns, _ in choice.arms for pattern in arm_patterns)
            )
        return None

    # Operators

    def result(self, cell: Cell) -> str:
        """Return a netlist operator as text for the right side of an assignment to a wire as wide as its result.

        Raises
        ------
        ToolError
            If the operator can't be written with signed operands.
        """
        standing = self._operator_text(cell, alone=True)
        if standing is not None:
            return standing.text
        ports, width = cell.ports, width_of(cell.ports["Y"])
        if cell.kind in _BINARY and _BINARY[cell.kind] not in "/%":  # Verilog's round towards zero, Amaranth's down
            a, b = (self._signed(ports[port], width) for port in "AB")
            return f"{a} {_BINARY[cell.kind]} {b}"
        if cell.kind == "$neg":
            return f"-({self._signed(ports['A'], width)})"
        if cell.kind in ("$shl", "$sshr", "$shift"):
            operator = "<<" if cell.kind == "$shl" else ">>>"
            return f"{self._signed(ports['A'], width)} {operator} {self.operand(ports['B']).within('<<')}"
        raise unwritable(cell, f"{cell.kind[1:]} with signed operands", "compute with unsigned operands")

    def needs_room(self, cell: Cell) -> bool:
        """Return whether an operator is a shift of an operand wider than its result, which takes a wider wire."""
        return cell.kind in ("$shr", "$sshr", "$shift") and width_of(cell.ports["A"]) > width_of(cell.ports["Y"])

    def _signed(self, sig: Sig, width: int) -> str:
        if is_const(sig):
            value = value_of(sig)
            if value >> (width_of(sig) - 1):
                value |= (1 << width) - (1 << width_of(sig))
            return signed_const(value, width)
        return f"$signed({self.operand(sig).text})"

    def _operator_text(self, cell: Cell, *, alone: bool = False) -> ExpressionText | None:
        """Return `ExpressionText` of an operator, right in any context; ``None`` if operands need sign extension.

        With ``alone`` the expression is the whole right side of an assignment. Verilog then extends the operands of a
        sum by one bit, and the operands of a product to the width of the result.
        """
        ports, width = cell.ports, width_of(cell.ports["Y"])
        if cell.kind in _BINARY:
            return self._binary(cell, width, alone)
        if cell.kind in _COMPARE:
            return self._comparison(cell)
        if cell.kind in _SHIFT:
            return self._shift(cell, width)
        if cell.kind in _REDUCE:
            if width_of(ports["A"]) == 1:
                return self.operand(ports["A"])
            return ExpressionText(f"{_REDUCE[cell.kind]}{self.operand(ports['A']).within('~')}", "r")
        if cell.kind == "$not":
            return self._negated(ports["A"])
        if cell.kind == "$neg":
            if cell.parameters["A_SIGNED"] and width_of(ports["A"]) < width:
                return None
            return ExpressionText(f"-{self.operand(ports['A'], width).within('~')}", "~")
        if cell.kind == "$mux":
            a, b = self.operand(ports["A"], width), self.operand(ports["B"], width)
            other = a.text if a.operator == "?" else a.within("?")
            return ExpressionText(f"{self.operand(ports['S']).within('?')} ? {b.within('?')} : {other}", "?")
        raise unwritable(cell, f"cells of type {cell.kind}", "build the circuit without them")

    def _binary(self, cell: Cell, width: int, alone: bool) -> ExpressionText | None:
        a, b = cell.ports["A"], cell.ports["B"]
        operator = _BINARY[cell.kind]
        if cell.parameters["A_SIGNED"]:
            a, b = _sign_extended(a, width), _sign_extended(b, width)
            if width_of(a) < width or width_of(b) < width or operator in "/%":
                return None
        bare = alone and not is_const(a) and not is_const(b) and self._fits(operator, width_of(a), width_of(b), width)
        texts = [self.operand(sig) if bare else self.operand(sig, width) for sig in (a, b)]
        if bare and any(text.operator for text in texts):
            texts = [self.operand(sig, width) for sig in (a, b)]
        return ExpressionText(f"{texts[0].within(operator)} {operator} {texts[1].within(operator)}", operator)

    @staticmethod
    def _fits(operator: str, a: int, b: int, width: int) -> bool:
        return (operator == "+" and a == b == width - 1) or (operator == "*" and a + b == width)

    def _comparison(self, cell: Cell) -> ExpressionText:
        a, b = cell.ports["A"], cell.ports["B"]
        operator = _COMPARE[cell.kind]
        width = max(width_of(a), width_of(b))
        if operator in ("==", "!=") and width == 1 and (is_const(a) or is_const(b)):
            other, value = (a, value_of(b)) if is_const(b) else (b, value_of(a))
            return self.operand(other, 1) if (operator == "==") == bool(value) else self._negated(other)
        if cell.parameters["A_SIGNED"]:
            a, b = _sign_extended(a, width), _sign_extended(b, width)
            if operator not in ("==", "!=") or width_of(a) != width_of(b):
                return ExpressionText(f"{self._signed(a, width)} {operator} {self._signed(b, width)}", operator)
        left, right = self.operand(a, width), self.operand(b, width)
        return ExpressionText(f"{left.within(operator)} {operator} {right.within(operator)}", operator)

    def _shift(self, cell: Cell, width: int) -> ExpressionText | None:
        a, b = cell.ports["A"], cell.ports["B"]
        signed = bool(cell.parameters["A_SIGNED"])
        # A part select beyond the last bit of a signed value reads the sign bit.
        if cell.kind == "$sshr" or (signed and (width_of(a) < width or cell.kind == "$shift")):
            return None
        return ExpressionText(
            f"{self.operand(a, width).within('<<')} {_SHIFT[cell.kind]} {self.operand(b).within('<<')}", "<<"
        )


def _sign_extended(sig: Sig, width: int) -> Sig:
    """Return a constant netlist signal sign-extended to ``width`` bits, or any other signal unchanged.

    Other signals are returned unchanged.
    """
    if not is_const(sig) or not sig:
        return sig
    have, value = width_of(sig), value_of(sig)
    if value >> (have - 1):
        value |= (1 << width) - (1 << have)
    return (WireBits("", 0, width, value & (1 << width) - 1),)


def selected(name: str, declared: int, low: int, width: int) -> str:
    """Return the text of a Verilog bit selection of a signal or word: ``name``, ``name[4]`` or ``name[7:4]``.

    Parameters
    ----------
    name : str
        Name of the signal or word.
    declared : int
        Width of the declaration of ``name``, in bits.
    low, width : int
        Lowest bit of the selection, and width in bits.

    Raises
    ------
    InternalError
        If ``name`` is not declared with all of these bits.
    """
    high = low + width - 1
    if low < 0 or width < 1 or high >= declared:
        raise InternalError(
            f"the Verilog writer selects bits {high}:{low} of {name}, which is declared with {declared}: "
            "this is a defect of hwgen, please report it with the model and the command"
        )
    if width == declared:
        return name
    return f"{name}[{low}]" if width == 1 else f"{name}[{high}:{low}]"


def _split_pattern(bits: str) -> list[str]:
    """Return a bit pattern as a list of texts, alternately only dashes (any bit) and only other characters."""
    runs: list[str] = []
    for bit in bits:
        if runs and (runs[-1][-1] == "-") == (bit == "-"):
            runs[-1] += bit
        else:
            runs.append(bit)
    return runs
