"""Parsed Verilog modules: text, ports, signals and instances of each module in a file that hwgen wrote."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

#: Suffix of the name that `modules_of` gives a module's text for synthesis, if there is another for simulation.
SYNTHESIS = "_synthesis"

#: Names of ports that reset a module: the domain's reset, and resets of a bus shell's and of an engine's submodules.
RESETS = ("rst", "reset", "run_reset")

_MODULE = re.compile(r"^module (\w+)\b.*?^endmodule$", re.MULTILINE | re.DOTALL)
_PORT = re.compile(r"^ {4}(input|output) +(?:wire|reg) +(?:\[(\d+):0\] )?(\w+)", re.MULTILINE)
_SIGNAL = re.compile(r"^ {4}(?:(?:input|output) +)?(?:wire|reg) +(?:\[(\d+):0\] )?(\w+)(?: =|;|,|$| //)", re.MULTILINE)
_ARRAY = re.compile(r"^ {4}reg +(?:\[\d+:0\] )?(\w+) \[", re.MULTILINE)
_INSTANCE = re.compile(r"^ {4}(\w+)(?: #\([^;]*?\))? (\w+) \(\n(.*?)^ {4}\);$", re.MULTILINE | re.DOTALL)
_CONNECTION = re.compile(r"^ {8}\.(\w+)\((.*?)\),?$", re.MULTILINE)
_OUTPUT_REGISTER = re.compile(r"^( {4}output) +reg +((?:\[[^\]]*\] )?\w+)(?: = [^,\n]*?)?(,?)( *//.*)?$", re.MULTILINE)
_RESET_BLOCK = re.compile(r"^ {8}if \(rst\) begin\n((?: {12}.*\n)*?) {8}end$", re.MULTILINE)
_RESET = re.compile(r"^ {12}(\w+) <= ", re.MULTILINE)
_INITIAL = re.compile(r"^ {4}(?:output )?reg +(?:\[\d+:0\] )?(\w+) = ([^,;\n]+?)(?=,|;|$| //)", re.MULTILINE)
_INITIAL_VALUE = re.compile(r"^( {4}(?:output )?reg +(?:\[\d+:0\] )?)(\w+) = [^,;\n]+?(?=,|;|$| //)", re.MULTILINE)
_DECLARED = re.compile(r"\b(?:wire|reg|integer)\s+(?:signed\s+)?(?:\[[^\]]*\]\s*)?(\w+)")
_COMMENT = re.compile(r"//.*$", re.MULTILINE)
_EVENT = re.compile(r"\balways\w*\s*(?:@\s*(\([^)]*\)|\*|\w*))?")
_MEMORY_OF_ZEROS = re.compile(
    r"^ {4}initial for \(row = .*\) \w+\[row\] = (?:\d+'d0|\{WIDTH\{1'b0\}\});\n", re.MULTILINE
)
_FILE = re.compile(r'\.INIT\("(.*?)"\)')
_READ_FILE = "initial $readmemh(INIT, memory);"
"""Verilog statement in a memory's module that reads the memory's contents from a file."""


@dataclass(frozen=True)
class Declared:
    """Port or signal that a Verilog module declares: name, width in bits, and direction (empty for an inner signal)."""

    name: str
    width: int
    direction: str = ""


@dataclass(frozen=True)
class VerilogModule:
    """Module of emitted Verilog: its name, and its text from ``module`` to ``endmodule``.

    Parameters
    ----------
    name : str
        Name of the module.
    text : str
        Text of the module.
    """

    name: str
    text: str

    @cached_property
    def ports(self) -> dict[str, Declared]:
        """Dictionary of the module's ports, each a `Declared`, by name; empty if port widths are parameters."""
        if self.has_parameters:
            return {}
        ports = _PORT.finditer(self.head)
        return {name: Declared(name, int(high or 0) + 1, direction) for direction, high, name in map(_groups, ports)}

    @property
    def clock(self) -> str:
        """Name of the clock port: ``clk``, or ``aclk`` in a bus wrapper."""
        return "aclk" if "aclk" in self.ports else "clk"

    @cached_property
    def foreign_clocks(self) -> list[str]:
        """List of clocks or edges in the module, as texts, other than the rising edge of its own clock."""
        events = (event.strip("() ") for event in _EVENT.findall(_COMMENT.sub("", self.text)))
        clocks = (net for ports in self.connections.values() for port, net in ports.items() if port in ("clk", "aclk"))
        return [
            *(event for event in events if event not in ("*", f"posedge {self.clock}")),
            *(net for net in clocks if net != self.clock),
        ]

    @property
    def resets(self) -> list[str]:
        """List of names of the input ports that reset the module, ``rst`` first."""
        return [name for name in RESETS if name in self.ports and self.ports[name].direction == "input"]

    @cached_property
    def reset_values(self) -> dict[str, str]:
        """Dictionary from register name to Verilog number: power-up values of the registers that ``rst`` resets."""
        reset = {name for block in _RESET_BLOCK.findall(self.text) for name in _RESET.findall(block)}
        return {name: value for name, value in _INITIAL.findall(self.text) if name in reset}

    @property
    def uninitialised(self) -> str:
        """Text of the module with unknown power-up values: of written memories, and of registers without a reset."""

        def kept(match: re.Match[str]) -> str:
            return match[0] if match[2] in self.reset_values else match[1] + match[2]

        return _MEMORY_OF_ZEROS.sub("", _INITIAL_VALUE.sub(kept, self.text)).replace(_READ_FILE, "")

    @property
    def head(self) -> str:
        """Text of the module from its start to the end of its port list."""
        return self.text[: self.text.index("\n);") + 3]

    @property
    def has_parameters(self) -> bool:
        """Whether the module has Verilog parameters, as memory modules that others share do."""
        return self.text.startswith(f"module {self.name} #")

    @property
    def is_rom(self) -> bool:
        """Whether the module is a memory without a write port."""
        return self.has_parameters and "parameter W0_PARTS" not in self.head

    @cached_property
    def signals(self) -> dict[str, Declared]:
        """Dictionary of the module's registers and wires, each a `Declared`, by name, ports included."""
        signals = _SIGNAL.finditer(self.text)
        return {name: Declared(name, int(high or 0) + 1) for high, name in map(_groups, signals)}

    @cached_property
    def arrays(self) -> list[str]:
        """List of names of the memories that the module declares itself, as ``reg`` arrays."""
        return _ARRAY.findall(self.text)

    @cached_property
    def instances(self) -> dict[str, str]:
        """Dictionary from instance name to the name of the instantiated module."""
        return {name: module for module, name, _ in map(_groups, _INSTANCE.finditer(self.text))}

    @cached_property
    def connections(self) -> dict[str, dict[str, str]]:
        """Dictionary from instance name to a dict of its ports' connections: Verilog expressions by port name."""
        return {
            name: dict(_CONNECTION.findall(ports)) for _, name, ports in map(_groups, _INSTANCE.finditer(self.text))
        }

    def contents_of(self, instance: str) -> str:
        """Return the name of the file with a memory instance's contents; empty if it has none."""
        instances = _INSTANCE.finditer(self.text)
        name = next((_FILE.search(match[0]) for match in instances if match[2] == instance), None)
        return name[1] if name else ""

    def with_contents(self, words: Sequence[str]) -> str:
        """Return the text of a memory's module that sets all words by statements instead of reading a file.

        The text thus contains all that its circuit depends on.

        Parameters
        ----------
        words : sequence of str
            Hexadecimal numbers, starting at address 0.
        """
        rows = [f"memory[{address}] = {4 * len(word)}'h{word};" for address, word in enumerate(words)]
        return self.text.replace(_READ_FILE, "\n".join(["initial begin", *rows, "end"]))

    @property
    def with_free_outputs(self) -> str:
        """Verilog text of a module with the same ports whose outputs may be anything (``$anyseq``)."""
        outputs = re.findall(r"^ {4}output +(?:wire|reg) +(\[[^\]]*\] |)(\w+)", self.head, re.MULTILINE)
        lines = [f"    wire {width}free_{name} = $anyseq;\n    assign {name} = free_{name};" for width, name in outputs]
        return self.with_body("\n".join(lines))

    def with_body(self, body: str) -> str:
        """Return the text of a module with the same ports whose outputs the Verilog lines ``body`` drive."""
        head = _OUTPUT_REGISTER.sub(r"\1 wire \2\3\4", self.head)
        return f"{head}\n{body}\nendmodule\n"


def _groups(match: re.Match[str]) -> tuple[str, ...]:
    return match.groups()


def declared_names(lines: Iterable[str]) -> list[str]:
    """Return a list of the names of the wires and registers that Verilog lines declare."""
    return [name for line in lines for name in _DECLARED.findall(line)]


def modules_of(text: str) -> dict[str, VerilogModule]:
    """Return a dictionary of each `VerilogModule` of a Verilog file that hwgen wrote, by module name.

    A file can have two texts of a module: first for synthesis, then for simulation. The second one has the module's
    name. The first one has the name followed by `SYNTHESIS`, also in its text.
    """
    modules: dict[str, VerilogModule] = {}
    for module in _modules(text):
        if module.name in modules:
            name, other = f"{module.name}{SYNTHESIS}", modules[module.name]
            modules[name] = VerilogModule(name, other.text.replace(f"module {module.name}", f"module {name}", 1))
        modules[module.name] = module
    return modules


def _modules(text: str) -> Iterator[VerilogModule]:
    for match in _MODULE.finditer(text):
        yield VerilogModule(match[1], match[0])
