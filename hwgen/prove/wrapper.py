"""Verilog wrapper around an emitted module for a proof: free inputs, the obligation's assumptions and assertions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from hwgen.errors import InputError
from hwgen.obligations.modules import VerilogModule, declared_names
from hwgen.obligations.obligation import Obligation

PROOF, COVER = "proof", "cover_reached"
"""Names of the wrapper modules: with the property, and with the claim that the cover is never reached."""

#: Name that wrappers give the port ``rst`` of a module that has other resets as well.
DOMAIN_RESET = "domain_reset"
_ASSERTS = "    always @* assert("
"""Start of each Verilog line that asserts a fact."""
_HEXADECIMAL = re.compile(r"[0-9a-fA-F]+")


@dataclass(frozen=True)
class Wrapped:
    """Verilog text to prove an obligation on: wrapper and modules, with names independent of the design.

    Parameters
    ----------
    modules : str
        Text of the emitted modules, and of models in the place of others.
    wrappers : str
        Text of the modules `PROOF` and `COVER`.
    sees : dict of str to str
        Path of the driver of each seen signal, and of each input of a probe, in the flattened wrapper, by its name.
    cut : tuple of str
        Names of the modules that are empty, so that their outputs are free.
    replayed : str
        Text of a wrapper for simulation, which prints the assertions that fail.
    foreign_clock : str
        Module whose registers are not all on the rising edge of its clock, and another event; empty if there is none.
    """

    modules: str
    wrappers: str
    sees: Mapping[str, str]
    cut: tuple[str, ...] = ()
    replayed: str = ""
    foreign_clock: str = ""

    def fact_at(self, line: int) -> str:
        """Return the text of the fact that line ``line`` (from 1) of ``wrappers`` asserts."""
        return self.wrappers.splitlines()[line - 1].rpartition("// ")[2]

    def without(self, facts: Iterable[str]) -> Wrapped:
        """Return a `Wrapped`: a copy without the assertions whose texts are in ``facts``."""
        ends = tuple(f"  // {fact}" for fact in facts)
        lines = [line for line in self.wrappers.split("\n") if not (_ASSERTS in line and line.endswith(ends))]
        return replace(self, wrappers="\n".join(lines))

    def written(self, folder: Path) -> str:
        """Write modules and wrappers into a folder; return Yosys commands that connect inner signals to the wrapper."""
        (folder / "modules.v").write_text(self.modules, encoding="utf-8")
        (folder / "wrappers.v").write_text(self.wrappers, encoding="utf-8")
        # Without -nounset Yosys would cut the signal's readers from it as well.
        return "".join(f"connect -nounset -set \\{name} \\{path}; " for name, path in self.sees.items())


def _no_file(name: str) -> str:
    raise InputError(f"file {name} with the contents of a memory is missing: build the design again")


def wrapped(
    obligation: Obligation, modules: Mapping[str, VerilogModule], file: Callable[[str], str] = _no_file
) -> Wrapped:
    """Return the Verilog (`Wrapped`) to prove an obligation on, given the emitted ``modules``.

    ``file`` returns the text of a file with the contents of a memory, by the file's name.

    Raises
    ------
    InputError
        If the module, a signal that the obligation sees, or a file with the contents of a memory does not exist.
    """
    if obligation.module not in modules:
        raise InputError(f"module {obligation.module} is not in the Verilog: build the design again")
    texts = _ModuleTexts(obligation, modules, file)
    top = modules[obligation.module]
    ports = [port for port in top.ports.values() if port.name != top.clock]
    inner_names = {port.name: port.name for port in ports}
    clock = {top.clock: "clk"} if top.clock in top.ports else {}
    several = len(top.resets) > 1  # the observer's ``rst`` is then high with any of them
    if several:
        inner_names["rst"] = DOMAIN_RESET
    # A port that is seen by its own name is a wire of the wrapper already.
    sees = {name: path for name, path in obligation.sees.items() if name != path or path not in top.ports}
    seen = [texts.seen(name, path) for name, path in sees.items()]
    drives = obligation.drives
    inputs = [
        replace(port, name=inner_names[port.name])
        for port in ports
        if port.direction == "input" and port.name not in drives
    ]
    driven = [port for port in ports if port.name in drives]
    fixed_inputs = [f"    wire {_range(port.width)}{port.name} = {drives[port.name]};" for port in driven]
    probes = {path: value for path, value in drives.items() if path not in top.ports}
    instance = [
        f"    {texts.names['']} dut (",
        ",\n".join(f"        .{port}({name})" for port, name in (clock | inner_names).items()),
        "    );",
    ]
    outputs = [f"    wire {_range(port.width)}{port.name};" for port in ports if port.direction == "output"]
    observer = [f"    {line}" for line in obligation.observer]
    guided = _fix_signals(observer, {name: value for name, value in obligation.run.items() if name not in top.ports})
    names = {path: path.replace(".", "_") for path in probes}
    driven_probes = [
        f"    wire {_range(texts.seen('', path)[1])}{names[path]} = {value};" for path, value in probes.items()
    ]
    replayed_probes = [f"    always @* force dut.{path} = {value};" for path, value in probes.items()]

    own_names = declared_names(obligation.observer)
    _check_names([*(port.name for port in top.ports.values()), *obligation.inputs, *sees, *own_names])

    # Resets only lengthen the search for a run that reaches a cover.
    run = {**obligation.run, **{inner_names[reset]: "1'b0" for reset in top.resets}}

    def module(name: str, seen_lines: list[str], statements: list[str]) -> str:
        fixed = run if name == COVER else {}
        head = ["    input  wire clk"]
        head += [f"    input  wire {_range(port.width)}{port.name}" for port in inputs if port.name not in fixed]
        head += [f"    input  wire {_range(width)}{port}" for port, width in obligation.inputs.items()]
        constants = [
            f"    wire {_range(port.width)}{port.name} = {fixed[port.name]};" for port in inputs if port.name in fixed
        ]
        constants += [f"    wire rst = {' | '.join(inner_names[reset] for reset in top.resets)};"] if several else []
        lines = guided if name == COVER else observer
        body = [*constants, *outputs, *seen_lines, *lines, *fixed_inputs, *instance, *statements]
        return "\n".join([f"module {name} (", ",\n".join(head), ");", *body, "endmodule", ""])

    facts = {**obligation.invariants, **obligation.asserts}
    rules = [f"    always @* assume({expression});  // {rule}" for rule, expression in obligation.assumes.items()]
    claims = [f"{_ASSERTS}{expression});  // {fact}" for fact, expression in facts.items()]
    # A search for a run needs a register: plain rules must hold in two cycles.
    begun = [] if obligation.cover else ["    reg run_began = 0;", "    always @(posedge clk) run_began <= 1;"]
    never = [*begun, f"    always @* assert(!({obligation.cover or 'run_began'}));"]
    free = [f"    wire {_range(width)}{name};" for name, width in seen]
    read = [f"    wire {_range(width)}{name} = dut.{sees[name]};" for name, width in seen]
    return Wrapped(
        "\n".join(texts.lines),
        "\n".join(
            [
                "`default_nettype none",  # a misspelt name would be a free wire
                module(PROOF, free, [*driven_probes, *rules, *claims]),
                module(COVER, free, [*driven_probes, *rules, *never]),
            ]
        ),
        {
            **{name: f"dut.{path}" for name, path in sees.items()},
            **{f"dut.{path}": name for path, name in names.items()},
        },
        tuple(texts.cut),
        module(PROOF, read, [*replayed_probes, *_failure_prints(obligation)]),
        foreign_clock=next(iter(texts.foreign_clocks), ""),
    )


def _failure_prints(obligation: Obligation) -> list[str]:
    """Return a list of Verilog lines that print, at each clock edge, a failing assertion or broken assumption."""
    lines = [
        "    reg has_failed = 0;",
        "    integer cycle = 0;",
        "    always @(posedge clk) begin",
        "        cycle = cycle + 1;",
    ]
    for word, facts in (
        ("broken rule", obligation.assumes),
        ("refuted invariant", obligation.invariants),
        ("refuted", obligation.asserts),
    ):
        lines += [
            f'        if (!({expression})) begin has_failed = 1; $display("cycle %0d, {word}: {fact}", cycle - 1); end'
            for fact, expression in facts.items()
        ]
    return [*lines, "    end"]


def _fix_signals(observer: list[str], values: Mapping[str, str]) -> list[str]:
    """Return, as a list, an observer's lines with free signals replaced by given Verilog expressions.

    Raises
    ------
    InputError
        If the observer has no such signal, or it is not free.
    """
    text = "\n".join(observer)
    for name, value in values.items():
        text, count = re.subn(rf"(\b{name} = )\$any(?:seq|const);", rf"\g<1>{value};", text)
        if count != 1:
            raise InputError(f"the observer has no free signal {name}: build the design again")
    return text.splitlines()


def _check_names(names: Iterable[str]) -> None:
    """Raise InputError if two signals of a wrapper have the same name, which Yosys would join to one.

    Raises
    ------
    InputError
        If a name is there twice, so that an assertion could compare a signal with itself.
    """
    twice = next((name for name, count in Counter(names).items() if count > 1), "")
    if twice:
        raise InputError(f"signal {twice} of the observer has the name of another one: build the design again")


def _range(width: int) -> str:
    return f"[{width - 1}:0] " if width > 1 else ""


class _ModuleTexts:
    """Verilog texts of an obligation's modules, as emitted, modelled, or with free outputs, renamed neutrally."""

    def __init__(
        self, obligation: Obligation, modules: Mapping[str, VerilogModule], file: Callable[[str], str]
    ) -> None:
        self.names: dict[str, str] = {}
        self.lines: list[str] = []
        self.cut: list[str] = []
        self.foreign_clocks: list[str] = []
        self._obligation, self._modules, self._file = obligation, modules, file
        self._bodies: dict[str, str] = {}
        self._add("", modules[obligation.module])

    def _add(self, path: str, module: VerilogModule, contents: str = "") -> None:
        """Add the text of the module at ``path``, and then the texts of its instances.

        ``contents`` is the name of the file with a memory's contents; empty if all words are 0, or for other modules.
        """
        self.names[path] = name = f"m{len(self.names)}"
        models, keeps = self._obligation.models, self._obligation.keeps
        if path in models:
            text = module.with_body("\n".join(f"    {line}" for line in models[path]))
        elif path and path not in keeps:
            text = module.with_free_outputs
            self.cut.append(name)
        elif module.is_rom:
            text = module.with_contents(self._words(contents)) if contents else module.text
        else:
            text = module.uninitialised
            self.foreign_clocks += [f"{module.name} has {clock!r}" for clock in module.foreign_clocks]
            if path in self._obligation.probes:
                lines = "".join(f"    {line}\n" for line in self._obligation.probes[path])
                text = f"{text.removesuffix('endmodule')}{lines}endmodule"
            for instance, kind in module.instances.items():
                if kind in self._modules:
                    inner = f"{path}.{instance}" if path else instance
                    self._add(inner, self._modules[kind], module.contents_of(instance))
                    instantiated = rf"^(    ){kind}( (?:#\([^;]*?\) )?{instance} \()"
                    text = re.sub(instantiated, rf"\1{self.names[inner]}\2", text, flags=re.MULTILINE)
        self._bodies[path] = text
        self.lines.append(re.sub(r"\A(module )\w+", rf"\g<1>{name}", text))

    def _words(self, name: str) -> list[str]:
        """Return a list of the hexadecimal words of a memory's contents file.

        ``$readmemh`` also reads addresses, comments and unknown digits. No file that hwgen writes has them.

        Raises
        ------
        InputError
            If the file can't be read, or has anything but words.
        """
        words = self._file(name).split()
        if not all(_HEXADECIMAL.fullmatch(word) for word in words):
            raise InputError(
                f"file {name} with the contents of a memory has not only hexadecimal words: build the design again"
            )
        return words

    def seen(self, name: str, path: str) -> tuple[str, int]:
        """Return a pair: ``name``, and the width in bits of the inner signal at ``path``, which the obligation reads.

        Raises
        ------
        InputError
            If there is no such signal.
        """
        instance, _, signal = path.rpartition(".")
        own_signal = VerilogModule("", self._bodies.get(instance, "")).signals.get(signal)
        if own_signal is None:
            raise InputError(f"module {self._obligation.module} has no signal {path}: build the design again")
        return name, own_signal.width
