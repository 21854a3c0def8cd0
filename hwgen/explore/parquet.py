"""Writer of tables as Parquet files, with pyarrow."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

from hwgen import installing
from hwgen.errors import ToolError

__all__ = ["require", "written"]


def require() -> None:
    """Raise an error if the package pyarrow is not installed.

    Raises
    ------
    ToolError
        If pyarrow is not installed.
    """
    if importlib.util.find_spec("pyarrow") is None:
        raise ToolError(f"Parquet needs pyarrow, which is not installed: {installing.command('pyarrow')}")


def written(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Convert table rows to the bytes of a Parquet file.

    A column of integers has the type int64, a column of floats float64.

    Raises
    ------
    ToolError
        If pyarrow is missing.
    """
    require()
    import pyarrow  # type: ignore[import-not-found]
    import pyarrow.parquet  # type: ignore[import-not-found]

    values = {name: [_plain(row[name]) for row in rows] for name in columns}
    for name, column in values.items():  # options such as 1, 2 or auto
        if len({type(value) for value in column if value is not None} - {int, float}) and any(
            isinstance(value, int | float) and not isinstance(value, bool) for value in column
        ):
            values[name] = [None if value is None else str(value) for value in column]
    buffer = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table(values), buffer)
    return buffer.getvalue().to_pybytes()


def _plain(value: Any) -> Any:
    """Convert a tuple in a table to text such as ``4x8``, which Parquet can store; return other values unchanged."""
    return "x".join(map(str, value)) if isinstance(value, tuple) else value
