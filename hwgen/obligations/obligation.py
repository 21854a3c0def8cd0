"""Proof obligations: properties to prove of emitted Verilog modules, as expressions over their ports and signals.

An obligation is about a `Site`, an instance of an emitted module. A component class declares its `Proofs`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import combinations
from typing import Any

from amaranth import Shape
from amaranth.lib import data, wiring

from hwgen.errors import ConfigError
from hwgen.fields import Entries, entry, written
from hwgen.obligations.modules import SYNTHESIS, VerilogModule, declared_names

#: Version number, an integer, of the format of ``NAME.proofs.json`` files.
FORMAT = 1
#: Suffix of the names of files with proof obligations.
SUFFIX = ".proofs.json"


def _by_name(**rule: Any) -> Any:
    """Return a dataclass field for a dictionary, empty by default, that JSON omits while it is empty."""
    return entry(default_factory=dict, is_brief=True, **rule)


@dataclass(frozen=True, kw_only=True)
class Obligation:
    """Obligation to prove a property of an emitted module, for every input sequence and for resets at any time.

    The module is instantiated in a wrapper, where its ports keep their names. Its inputs are free. The lines of
    ``observer`` are part of the wrapper, and can read ports and the names in ``sees``. They can use the registers
    ``clk`` and ``rst``.

    Parameters
    ----------
    kind : str
        Name of the kind of obligation, such as ``stream``.
    module : str
        Name of the emitted module.
    path : str
        Path of an instance of the module in the design, such as ``conv1.fifo``; empty for the top module.
    statement : str
        The property in words.
    methods : tuple of str
        Names of the methods that are tried, in order (`hwgen.prove.methods`).
    observer : tuple of str
        Lines of Verilog: declarations, and logic that observes the module.
    sees : dict of str to str
        Signals inside the module that the wrapper reads: the path of each signal by its name in the wrapper.
    assumes : dict of str to str
        Rules that the environment keeps: a Verilog expression by the rule in words.
    rests_on : str
        Kind of the obligation of the same component whose facts are among the rules; empty if there is none.
    invariants : dict of str to str
        Facts that help the proof, and that are proved with it: a Verilog expression by the fact in words.
    asserts : dict of str to str
        Parts of the property: a Verilog expression by the part in words.
    cover : str
        Verilog expression that some run must fulfil, so that the property does not hold vacuously.
    run : dict of str to str
        Inputs, and free signals of the observer, that are fixed in the run that is searched for the cover: a Verilog
        expression by name. The search is then short. All others stay free.
    keeps : tuple of str
        Paths of instances that stay as emitted. The outputs of all others are free, unless they have a model.
    models : dict of str to list of str
        Bodies, as lines of Verilog, that replace the modules of instances, by path. Another obligation proves that the
        module behaves like its model.
    probes : dict of str to list of str
        Lines of Verilog that are added to the modules of instances, by path, and that only read:
        ``wire [7:0] probe_word = storage[probe_address];``. The path of the module itself is empty.
    drives : dict of str to str
        Inputs that are not free, and inputs of probes: a Verilog expression of the wrapper by port, or by signal.
    inputs : dict of str to int
        More free inputs of the wrapper, which ``drives`` can read: the width in bits by name.
    free_memories : bool
        Whether every word read from a memory is free, because the property holds whatever memories store.
    structure : dict
        Parameters of methods that look at the netlist and not at its behaviour.

    Raises
    ------
    ConfigError
        If an invariant and a part of the property have the same words, so that one would replace the other.
    """

    kind: str
    module: str
    path: str = entry("", is_brief=True)
    statement: str
    methods: tuple[str, ...]
    observer: tuple[str, ...] = entry((), is_brief=True)
    sees: Mapping[str, str] = _by_name()
    assumes: Mapping[str, str] = _by_name()
    rests_on: str = entry("", is_brief=True)
    invariants: Mapping[str, str] = _by_name()
    asserts: Mapping[str, str] = _by_name()
    cover: str = entry("", is_brief=True)
    run: Mapping[str, str] = _by_name()
    keeps: tuple[str, ...] = entry((), is_brief=True)
    models: Mapping[str, Sequence[str]] = _by_name()
    probes: Mapping[str, Sequence[str]] = _by_name()
    drives: Mapping[str, str] = _by_name()
    inputs: Mapping[str, int] = _by_name(minimum=1)
    free_memories: bool = entry(False, is_brief=True)
    structure: Mapping[str, Any] = _by_name()

    def __post_init__(self) -> None:
        if both := sorted(self.invariants.keys() & self.asserts.keys()):
            raise ConfigError(f"{both[0]!r} is both an invariant and a part of the property")


def write(verilog: str, obligations: Iterable[Obligation], reasons: Mapping[str, str] | None = None) -> bytes:
    """Return JSON bytes of ``NAME.proofs.json``: the obligations (properties to prove) of the file ``verilog``.

    ``reasons`` says, by path, why instances have no functional property.
    """
    document = {
        "format": FORMAT,
        "verilog": verilog,
        "obligations": [written(obligation) for obligation in obligations],
        "reasons": dict(reasons or {}),
    }
    return (json.dumps(document, indent=1) + "\n").encode()


def read(content: bytes, name: str) -> tuple[str, list[Obligation], dict[str, str]]:
    """Parse ``NAME.proofs.json``: Verilog file's name, obligations, why instances have none (by instance path).

    Raises
    ------
    InputError
        If ``content``, read from the file ``name``, is not a list of obligations.
    """
    document = Entries.parsed(content, name, help="build the design again")
    if (version := document.integer("format")) != FORMAT:
        document.refuse(f"has format {version}, not {FORMAT}")
    obligations = document.value("obligations", tuple[Obligation, ...])
    return document.text("verilog"), list(obligations), document.value("reasons", dict[str, str], default={})


Fields = data.Layout | Mapping[Any, data.Field]
"""Type of a payload's fields: an Amaranth layout, or a mapping from field name to Amaranth field."""


def choice(selector: str, entries: Sequence[object]) -> str:
    """Return a Verilog expression (text) that selects the entry with index ``selector`` from a list of entries."""
    if len(set(entries)) == 1:
        return str(entries[0])
    first = [f"{selector} == {index} ? {entry}" for index, entry in enumerate(entries[:-1])]
    return f"({' : '.join([*first, str(entries[-1])])})"


def field_bits(payload: str, fields: Fields, name: str, base: int = 0) -> str:
    """Return the Verilog slice (text) of a payload's field; the payload starts at bit ``base`` of the word."""
    return part(payload, base + fields[name].offset, fields[name].width)


def field_wires(layout: Fields, names: Iterable[str], payload: str, prefix: str) -> list[str]:
    """Return a list of Verilog lines that declare a wire ``PREFIX_NAME`` for each named field of a payload."""
    return [
        f"wire [{layout[name].width - 1}:0] {prefix}_{name} = {field_bits(payload, layout, name)};" for name in names
    ]


def in_circle(first: str, count: str, end: str, depth: int) -> str:
    """Return a Verilog condition: ``end`` is ``count`` words after ``first`` in a ring of ``depth`` words.

    No sum of addresses wraps, because one operand has 32 bits.
    """
    after = f"32'd0 + {first} + {count}"
    return f"(({after} == {end}) | ({after} == {end} + {depth}))"


def literal(value: int, bits: int) -> str:
    """Return a signed Verilog literal of ``bits`` bits, such as ``-8'sd3``."""
    return f"{'-' if value < 0 else ''}{bits}'sd{abs(value)}"


def signed_number(value: int) -> str:
    """Return a signed Verilog literal that is wide enough for the number and its negative."""
    return literal(value, abs(value).bit_length() + 2)


def part(word: str, first: int, bits: int) -> str:
    """Return Verilog text for ``bits`` bits of a word, starting at bit ``first``, such as ``word[7:4]``."""
    return f"{word}[{first + bits - 1}:{first}]"


def repeated(bits: str, count: int, width: int) -> str:
    """Return Verilog text that repeats each of ``count`` bits ``width`` times and concatenates them, lowest first."""
    return f"{{{', '.join(f'{{{width}{{{bits}[{index}]}}}}' for index in reversed(range(count)))}}}"


def value_of(bits: str, shape: Shape) -> str:
    """Return a signed Verilog expression of the value that ``bits`` represents, read with the Amaranth shape."""
    return f"$signed({bits})" if shape.signed else f"$signed({{1'b0, {bits}}})"


def table(name: str, words: Sequence[int], *, signed: bool) -> list[str]:
    """Return a list of lines of Verilog that define a constant memory, called ``name``, of signed words.

    Parameters
    ----------
    name : str
        Name of the memory.
    words : sequence of int
        Words for all values of the address, from the smallest value to the largest.
    signed : bool
        Whether the address is a two's complement number, so that the first half of the words is for negative ones.
    """
    bits = max((word if word >= 0 else ~word).bit_length() for word in words) + 1
    half = len(words) // 2 if signed else 0
    contents = [
        f"{name}[{(address - half) % len(words)}] = {bits}'h{word % (1 << bits):x};"
        for address, word in enumerate(words)
    ]
    return [f"reg signed [{bits - 1}:0] {name} [0:{len(words) - 1}];", "initial begin", *contents, "end"]


def name_of_fields(signal: str, fields: Sequence[str]) -> str:
    """Return the name of the emitted port that carries some adjacent fields of a signal, given lowest first."""
    words = list(fields) if len(fields) < 3 else [fields[0], "to", fields[-1]]
    return f"{signal}__{'_'.join(words)}"


def name_of_slice(signal: str, low: int, width: int) -> str:
    """Return the name of the emitted port that carries ``width`` bits of a signal, starting at bit ``low``."""
    return f"{signal}_{low}" if width == 1 else f"{signal}_{low + width - 1}_{low}"


#: Pattern of a hierarchical signal path (``INSTANCE.SIGNAL``) in a Verilog expression of an obligation.
_PATH = re.compile(r"\b[A-Za-z_]\w*(?:\.\w+)+")
#: Pattern of a name in a Verilog expression; not a word of Verilog such as the ``b`` of ``1'b0`` or ``$signed``.
_NAME = re.compile(r"(?<![\w'$.])[A-Za-z_]\w*")


@dataclass(frozen=True)
class Carrier:
    """Emitted Verilog port or signal with some adjacent fields of a structure, or all: name, lowest bit, width.

    Parameters
    ----------
    name : str
        Emitted name.
    low, width : int
        Lowest bit in the structure, and number of bits.
    """

    name: str
    low: int
    width: int

    def has(self, field: data.Field) -> bool:
        """Return whether the emitted port or signal carries a field of the structure."""
        return self.low <= field.offset and field.offset + field.width <= self.low + self.width

    def bits(self, field: data.Field) -> str:
        """Return the Verilog expression that selects a field of the structure from the emitted port or signal."""
        low = field.offset - self.low
        return self.name + (f"[{low + field.width - 1}:{low}]" if self.width > 1 else "")


@dataclass(frozen=True)
class Site:
    """Instance of an emitted Verilog module in a design: its path, its module, and the design's other modules.

    Parameters
    ----------
    path : str
        Path of the instance, such as ``conv1.fifo``; empty for the top module.
    module : VerilogModule
        Module of the instance.
    modules : mapping of str to VerilogModule
        All modules of the design, by name.
    """

    path: str
    module: VerilogModule
    modules: Mapping[str, VerilogModule]

    def inner(self, instance: str) -> Site | None:
        """Return the `Site` of the instance inside with a given name; ``None`` if the component is only wires."""
        instance = self.instance(instance)
        name = self.module.instances.get(instance)
        path = f"{self.path}.{instance}" if self.path else instance
        return None if name is None else Site(path, self.modules[name], self.modules)

    def part(self, instance: str) -> Site:
        """Return the `Site` of the instance inside with a given name; a component of only wires raises LookupError.

        Raises
        ------
        LookupError
            If there is none, or the component is wires only.
        """
        inner = self.inner(instance)
        if inner is None:
            raise LookupError(f"module {self.module.name} has no instance {instance} with a module")
        return inner

    def instance(self, name: str) -> str:
        """Return the emitted name of an instance, which gets a number if a signal has the same name."""
        module = f"{self.module.name}_{name}"
        renamed = (other for other, kind in self.module.instances.items() if kind == module)
        return name if name in self.module.instances else next(renamed, name)

    def has(self, *names: str) -> bool:
        """Return whether the emitted module has all of these ports or signals; signals never read are not emitted."""
        return all(name in self.module.ports or name in self.module.signals for name in names)

    def first(self, *names: str) -> str:
        """Return the first name that is an emitted port or signal; equal outputs are emitted under one name only.

        Raises
        ------
        LookupError
            If none of them was emitted.
        """
        for name in filter(self.has, names):
            return name
        raise LookupError(f"module {self.module.name} has no port or signal {' or '.join(names)}")

    def carriers(self, signal: str, layout: data.StructLayout) -> list[Carrier]:
        """Return a list of each `Carrier` (emitted port or signal) of a structure's fields, lowest bits first.

        If registers drive some fields and logic others, the emitted module has a port for each group of fields.

        Parameters
        ----------
        signal : str
            Name of the structure in the component.
        layout : StructLayout
            Its fields.

        Raises
        ------
        LookupError
            If nothing carries a field of the structure.
        """
        if self.has(signal):
            return [Carrier(signal, 0, layout.size)]
        fields = sorted(((str(name), field) for name, field in layout), key=lambda entry: entry[1].offset)
        groups = (fields[begin:end] for begin, end in combinations(range(len(fields) + 1), 2))
        named = ((name_of_fields(signal, [name for name, _ in group]), group) for group in groups)
        found = [
            Carrier(name, group[0][1].offset, sum(field.width for _, field in group))
            for name, group in named
            if self.has(name)
        ]
        if not found:
            raise LookupError(f"module {self.module.name} has no port or signal with fields of {signal}")
        return found

    def fields(self, signal: str, layout: data.StructLayout) -> dict[str, str]:
        """Return, as a dictionary, a Verilog expression for each emitted field of a structure, by the field's name.

        Raises
        ------
        LookupError
            If nothing carries a field of the structure.
        """
        carriers = self.carriers(signal, layout)
        return {str(name): each.bits(field) for name, field in layout for each in carriers if each.has(field)}

    def slices(self, signal: str, bits: int) -> list[Carrier]:
        """Return a list of each `Carrier` (emitted port) of a ``bits``-bit value, lowest first; empty if constant."""
        if self.has(signal):
            return [Carrier(signal, 0, bits)]
        spans = ((low, width) for low in range(bits) for width in range(1, bits - low + 1))
        named = ((name_of_slice(signal, low, width), low, width) for low, width in spans)
        return [Carrier(name, low, width) for name, low, width in named if name in self.module.ports]

    def low_bits(self, signal: str, bits: int) -> str:
        """Return the name of the emitted port that carries the low bits of a value of at most ``bits`` bits.

        Raises
        ------
        LookupError
            If there is none.
        """
        return self.first(signal, *(name_of_slice(signal, 0, width) for width in range(1, bits + 1)))

    def word(self, signal: str, bits: int) -> str:
        """Return Verilog text for a value of ``bits`` bits, where bits without an emitted port are 0."""
        texts, end = [], 0
        for port in self.slices(signal, bits):
            texts += [*([f"{port.low - end}'d0"] if port.low > end else []), port.name]
            end = port.low + port.width
        texts += [f"{bits - end}'d0"] if end < bits else []
        return texts[0] if len(texts) == 1 else f"{{{', '.join(reversed(texts))}}}"

    def read_data(self, memory: str) -> str:
        """Return the name of the signal with the word that a memory returns.

        A large memory has a module of its own.
        """
        return f"{memory}__r0_data" if memory in self.module.instances else f"{memory}_data"

    def streams(self, direction: str) -> list[str]:
        """Return a list of names of the module's streams with back-pressure, of direction ``input`` or ``output``."""
        ports = self.module.ports
        names = [name.removesuffix("__valid") for name in ports if name.endswith("__valid")]
        return [name for name in names if f"{name}__ready" in ports and ports[f"{name}__valid"].direction == direction]

    @property
    def circuit(self) -> Site:
        """Site with the module's text for synthesis, if there is another text for simulation; otherwise this site."""
        return Site(self.path, self.modules.get(f"{self.module.name}{SYNTHESIS}", self.module), self.modules)

    @property
    def all_instances(self) -> tuple[str, ...]:
        """Tuple of paths of all instances inside the module, at any depth."""
        paths: list[str] = []
        for instance, name in self.module.instances.items():
            if name in self.modules:
                inner = Site(instance, self.modules[name], self.modules)
                paths += [instance, *(f"{instance}.{path}" for path in inner.all_instances)]
        return tuple(paths)

    @property
    def memories(self) -> tuple[str, ...]:
        """Tuple of names of the memory instances in the module; their modules have Verilog parameters."""
        instances = self.module.instances.items()
        return tuple(name for name, module in instances if self.modules[module].has_parameters)

    def obligation(self, obligation_kind: str, statement: str, *, within: str = "", **fields: Any) -> Obligation:
        """Return an `Obligation` (property to prove) of this module; ``fields`` are its further fields.

        Its Verilog can name signals of the module, signals of instances inside by path (``INSTANCE.SIGNAL``), and
        signals of the instance ``within`` without its path. Only names that the circuit does not have must be in
        ``sees``. The default methods suit counters: induction, and then property-directed reachability.

        Raises
        ------
        LookupError
            If a signal that the obligation sees was not emitted.
        """
        fields = {"methods": ("induction", "pdr"), **fields}
        stated = Obligation(
            kind=obligation_kind, module=self.module.name, path=self.path, statement=statement, **fields
        )
        return self._check_instances(self._expose_signals(stated, within))

    def _expose_signals(self, stated: Obligation, within: str) -> Obligation:
        """Return an `Obligation` that may also read (``sees``) every inner signal its Verilog names."""
        paths: dict[str, str] = {}

        def named(text: str) -> str:
            """Return an expression with the wrapper's signal names in place of hierarchical paths."""
            found = {path: f"at_{path.replace('.', '_')}" for path in _PATH.findall(text)}
            paths.update((name, path) for path, name in found.items())
            return _PATH.sub(lambda match: found[match[0]], text) if found else text

        observer = tuple(map(named, stated.observer))
        tables = {
            table: {key: named(text) for key, text in getattr(stated, table).items()}
            for table in ("assumes", "invariants", "asserts", "run", "drives")
        }
        cover = named(stated.cover)
        texts = [*observer, cover, *(text for table in tables.values() for text in table.values())]
        inner = {name: name for name in self.module.signals}
        inner |= {name: f"{within}.{name}" for name in self._site_at(within).module.signals} if within else {}
        inner_names = inner.keys() - {*self.module.ports, *stated.inputs, *declared_names(observer), *stated.sees}
        used = {name: inner[name] for text in texts for name in _NAME.findall(text) if name in inner_names}
        return replace(stated, observer=observer, cover=cover, sees=used | paths | dict(stated.sees), **tables)

    def _check_instances(self, stated: Obligation) -> Obligation:
        """Return an `Obligation` unchanged, once all instances and signals that it names are known to exist.

        A signal that its probes declare must be new in the module: Yosys would join two signals of one name.
        """
        for instance, lines in stated.probes.items():
            for name in filter(self._site_at(instance).has, declared_names(lines)):
                raise LookupError(f"module {self.module.name} has a signal {name}, which {stated.kind!r} adds")
        for path in (*stated.models, *stated.keeps):
            around, _, instance = path.rpartition(".")
            if instance not in self._site_at(around).module.instances:
                raise LookupError(f"module {self.module.name} has no instance {path}, which {stated.kind!r} names")
        for path in stated.sees.values():
            instance, _, signal = path.rpartition(".")
            added = (*stated.probes.get(instance, ()), *stated.models.get(instance, ()))
            if not any(signal in line for line in added) and not self._site_at(instance).has(signal):
                raise LookupError(f"module {self.module.name} has no signal {path}, which {stated.kind!r} sees")
        return stated

    def _site_at(self, path: str) -> Site:
        """Return the `Site` of an instance inside the module by its hierarchical path; for an empty path, this site."""
        names = path.split(".") if path else []
        return reduce(Site.part, names, self)


def bits_for(largest: int) -> str:
    """Return the Verilog range of a register that counts up to ``largest``, such as ``[3:0]`` for 15."""
    return f"[{max(1, largest.bit_length()) - 1}:0]"


Kind = Callable[[Any, Site], list[Obligation]]
"""Type of a function ``kind(config, site)`` that returns one kind's obligations of the component at a site."""


@dataclass(frozen=True)
class Proofs:
    """Proofs of one class of components: functions that state obligations, and why other parts have none.

    Parameters
    ----------
    kinds : tuple of Kind
        Functions that return obligations of a component, from its configuration and its site.
    components : function
        Function that returns the configurations of the components inside that have proofs, by instance.
    reasons : mapping of str to str, or function
        Why something has no functional property, or a function of configuration and site that returns it: the reason by
        what it concerns. That is the component (an empty name), instances inside (a pattern of paths), or ports that no
        property depends on (``:PORT`` or ``INSTANCE:PORT``). Instances inside have the reason of the component around
        them. An empty text states nothing.
    others : tuple of type
        Classes of components inside whose property, or reason, is stated here.
    resets : bool
        Whether the component's register values after a reset are stated. For arithmetic, the layer states them.
    """

    kinds: tuple[Kind, ...] = ()
    components: Callable[[Any], Mapping[str, Any]] = lambda _: {}
    reasons: Mapping[str, str] | Callable[[Any, Site], Mapping[str, str]] = field(default_factory=dict)
    others: tuple[type[wiring.Component], ...] = ()
    resets: bool = True
