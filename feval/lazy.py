"""Load the names of a package on first use (PEP 562), and what makes tables of recordings: importing stays cheap."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, modules: Mapping[str, tuple[str, ...]]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package whose public names live in its modules (dotted, relative to it).

    A module listed without names is itself an attribute: `from feval import hub; hub.recordings.pull(...)` loads it on use.
    """
    homes = {name: f"{package}.{module}" for module, names in modules.items() for name in names}
    whole = {module: f"{package}.{module}" for module, names in modules.items() if not names}

    def get(name: str) -> object:
        if name in whole:
            return import_module(whole[name])
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted({*homes, *whole, *getattr(sys.modules[package], "__all__", ())})


class LazyMapping(Mapping[str, Any]):
    """A mapping whose values are imported when they are looked up.

    Args:
        package: the dotted name that all of them lie below.
        homes: key -> `module:name`, the module relative to the package.
    """

    def __init__(self, package: str, homes: Mapping[str, str]) -> None:
        self._package = package
        self._homes = homes

    def __getitem__(self, key: str) -> Any:
        module, _, name = self._homes[key].partition(":")
        return getattr(import_module(f"{self._package}.{module}"), name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)


_TABLES = "feval.exporters.arrow"
"""Makes tables of recordings. It stands below these, and is loaded on first use."""


class Tabular:
    """What `exporters` makes a table of, on request."""

    __slots__ = ()

    def to_arrow(self, *, datasets: Sequence[str] | None = None, llms: Sequence[str] | None = None) -> Any:
        """Return the CoTs as one `pyarrow.Table` in memory, with a row for each CoT, or step of a tree.

        It is the table that `feval export --to parquet` writes. A column is there where an LLM has it; null is a missing
        value. docs/exporting.md says what each means. polars and DuckDB take the table as it is.

        Args:
            datasets: ids; `None` for all.
            llms: names; `None` for all.

        Raises:
            NotRecordedError: no such dataset or LLM.
        """
        return import_module(_TABLES).to_arrow(self, datasets, llms)

    def to_pandas(self, *, datasets: Sequence[str] | None = None, llms: Sequence[str] | None = None) -> Any:
        """Return the same as a pandas DataFrame.

        Raises:
            NotRecordedError: no such dataset or LLM.
            UsageError: pandas is not installed.
        """
        return import_module(_TABLES).to_pandas(self, datasets, llms)
