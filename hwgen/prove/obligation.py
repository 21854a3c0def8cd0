"""Proof obligations: properties of emitted modules, as Verilog expressions over a module's ports and signals."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hwgen.errors import InputError

__all__ = ["FORMAT", "SUFFIX", "Obligation", "read", "write"]

#: Number of the format of ``NAME.proofs.json``.
FORMAT = 1
#: End of the names of files with proof obligations.
SUFFIX = ".proofs.json"


@dataclass(frozen=True, kw_only=True)
class Obligation:
    """Obligation to prove one property of one emitted module, for every input sequence and for resets at any time.

    The module is instantiated in a wrapper, in which its ports have their own names. Its inputs are free. The lines of
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
        Verilog expression that some run must fulfil, so that the property does not hold in a void.
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
    ValueError
        If an invariant and a part of the property have the same words, so that one would replace the other.
    """

    kind: str
    module: str
    path: str
    statement: str
    methods: tuple[str, ...]
    observer: tuple[str, ...] = ()
    sees: Mapping[str, str] = field(default_factory=dict)
    assumes: Mapping[str, str] = field(default_factory=dict)
    rests_on: str = ""
    invariants: Mapping[str, str] = field(default_factory=dict)
    asserts: Mapping[str, str] = field(default_factory=dict)
    cover: str = ""
    run: Mapping[str, str] = field(default_factory=dict)
    keeps: tuple[str, ...] = ()
    models: Mapping[str, Sequence[str]] = field(default_factory=dict)
    probes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    drives: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, int] = field(default_factory=dict)
    free_memories: bool = False
    structure: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if both := sorted(self.invariants.keys() & self.asserts.keys()):
            raise ValueError(f"{both[0]!r} is both an invariant and a part of the property")

    def to_json(self) -> dict[str, Any]:
        """Return the obligation as a JSON object, without its empty fields."""
        return {key: value for key, value in dataclasses.asdict(self).items() if value}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Obligation:
        """Return the obligation that a JSON object describes; keys that are not known are ignored."""
        names = {field.name: field for field in dataclasses.fields(cls)}
        values = {"path": "", **{name: value for name, value in document.items() if name in names}}
        for name, value in values.items():
            if not _FITS.get(name, _is_text)(value):
                raise TypeError(f"{name} is {type(value).__name__} of the wrong form")
        lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
        return cls(**{**values, **lists})


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_lines(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_text, value))


def _is_text_by_name(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_text, value.values()))


def _are_widths_by_name(value: Any) -> bool:
    return isinstance(value, dict) and all(type(width) is int and width > 0 for width in value.values())


def _are_lines_by_name(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_are_lines, value.values()))


#: Check of the form of each field's JSON value, by the field's name. A field that is not here is a text.
_FITS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("methods", "observer", "keeps"), _are_lines),
    **dict.fromkeys(("sees", "assumes", "invariants", "asserts", "run", "drives"), _is_text_by_name),
    **dict.fromkeys(("models", "probes"), _are_lines_by_name),
    "inputs": _are_widths_by_name,
    "free_memories": lambda value: isinstance(value, bool),
    "structure": lambda value: isinstance(value, dict),
}


def write(verilog: str, obligations: Iterable[Obligation], reasons: Mapping[str, str] | None = None) -> bytes:
    """Return the contents of ``NAME.proofs.json`` for the Verilog file with the name ``verilog``.

    ``reasons`` says, by path, why instances have no functional property.
    """
    document = {
        "format": FORMAT,
        "verilog": verilog,
        "obligations": [obligation.to_json() for obligation in obligations],
        "reasons": dict(reasons or {}),
    }
    return (json.dumps(document, indent=1) + "\n").encode()


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dict, and refuse a repeated key, which would replace the entry before it.

    Raises
    ------
    ValueError
        If a key is there twice.
    """
    document: dict[str, Any] = {}
    for key, value in pairs:
        if key in document:
            raise ValueError(f"{key!r} is there twice")
        document[key] = value
    return document


def read(content: bytes, name: str) -> tuple[str, list[Obligation], dict[str, str]]:
    """Return the name of the Verilog file, its obligations, and the reasons by path, of a ``NAME.proofs.json``.

    Raises
    ------
    InputError
        If the content, of the file ``name``, is not a list of obligations.
    """
    try:
        document = json.loads(content, object_pairs_hook=_unique)
        if document["format"] != FORMAT:
            raise InputError(f"{name} has format {document['format']!r}, not {FORMAT}: build the design again")
        reasons = document.get("reasons", {})
        if not _is_text_by_name(reasons):
            raise TypeError("reasons are not texts by path")
        return str(document["verilog"]), [Obligation.from_json(entry) for entry in document["obligations"]], reasons
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise InputError(f"{name} is no list of proof obligations ({error}): build the design again") from error
