"""Proof obligations: properties to prove of emitted Verilog modules, as expressions over their ports and signals."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hwgen.errors import ConfigError
from hwgen.fields import Entries, entry, written

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
    """Return a tuple from a ``NAME.proofs.json``: the Verilog file's name, obligations, and reasons by path.

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
