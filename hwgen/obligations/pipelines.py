"""Obligations (properties to prove): a pipeline's outputs are a function of its inputs some cycles earlier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hwgen.obligations.obligation import Obligation
from hwgen.obligations.observers import age, is_old
from hwgen.obligations.site import Site


def index_of(site: Site, signal: str, bits: int) -> tuple[str, dict[str, int]]:
    """Return a pair: name of a beat's index signal, and a dict of the free input (bits by name) if it is missing.

    Such a module treats all beats alike, and its outputs must be right for a beat of any index.
    """
    return (signal, {}) if site.has(signal) else (f"any_{signal}", {f"any_{signal}": bits})


def pipeline(
    site: Site,
    obligation_kind: str,
    statement: str,
    cycles: int,
    facts: Mapping[str, str],
    *,
    observer: Sequence[str] = (),
    methods: tuple[str, ...] = ("exhaustive",),
    **fields: Any,
) -> Obligation:
    """Return the `Obligation`: ``facts`` (Verilog expressions) hold if no reset was in the last ``cycles`` cycles.

    All registers of the pipeline start with any value. After ``cycles`` cycles its outputs depend only on inputs.

    Parameters
    ----------
    site : Site
        Site of the component.
    obligation_kind, statement : str
        Kind of the obligation, and the property in words.
    cycles : int
        Number of cycles from the earliest input that the facts read, at least, to the outputs.
    facts : mapping of str to str
        Parts of the property: a Verilog expression by the part in words.
    observer : sequence of str, optional
        Lines of Verilog that delay and define values.
    methods : tuple of str, optional
        Names of the methods.
    **fields
        Other fields of the obligation, which can replace the cover. Those in ``asserts`` hold in all cycles.
    """
    guarded = {fact: f"!{is_old(cycles)} | ({expression})" for fact, expression in facts.items()}
    return site.obligation(
        obligation_kind,
        statement,
        methods=methods,
        observer=(*age(cycles), *observer),
        asserts=guarded | fields.pop("asserts", {}),
        **{
            "assumes": {"no reset": "!rst"},
            "cover": is_old(cycles),
            "structure": {"cycles": cycles},
            **fields,
        },
    )
