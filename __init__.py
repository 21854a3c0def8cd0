"""Not a package: this is the folder of hwgen's sources, and the package is the folder ``hwgen`` in it.

Where Python runs beside a folder of sources that is called hwgen, ``import hwgen`` finds this file first. The package
is then taken from where it is installed, as if Python ran elsewhere. Without this file Python would take the folder
for an empty package.
"""


def _take_the_installed_one() -> None:
    import sys
    from importlib.util import module_from_spec
    from pathlib import Path

    sources = Path(__file__).resolve().parent
    places = [place for place in sys.path if Path(place).resolve() != sources.parent]
    for finder in sys.meta_path:
        spec = finder.find_spec("hwgen", places)
        if spec is not None and spec.loader is not None and spec.origin is not None:
            sys.modules["hwgen"] = package = module_from_spec(spec)
            spec.loader.exec_module(package)
            package.__path__.append(str(sources))  # pytest calls a package of tests in there hwgen.tests
            return
    raise ImportError(
        f"hwgen is not installed for {sys.executable}: {sources} is only the folder of its sources; "
        f"{sources / 'README.md'} says how to install it, and {sources / '.venv/bin/python'} has it then"
    )


if __name__ == "hwgen":
    _take_the_installed_one()
