"""Numbers per question of a large comparison, in one temporary file: each column is mapped when it
is read, and kept by nobody.

Ten methods over ten budgets have close to a thousand numbers per question, but every statistic
needs only a few columns at once.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import partial
from typing import Any
from weakref import finalize

import numpy as np

from feval.errors import StorageError
from feval.evaluation.evaluation import Evaluation
from feval.methods.arrays import Floats
from feval.methods.error_shares import ErrorShares, MonteCarloPart

NUMBERS = (
    *(
        "right",
        "calls",
        "samples",
        "tokens",
        "usd",
        "tokens_per_round",
        "usd_per_round",
        "output_tokens",
    ),
    *("generated_tokens", "longest_trace_tokens", "probe_calls", "probe_tokens", "seconds"),
)
_SHARES = ("no_answer", "stopped_early", "routed_wrong")

Place = int | Floats | None
"""Where a column is in the file; one that is not there itself: the same number everywhere, or not
known.
"""


class ColumnFile:
    """A temporary file of columns [Q]; it is gone with the last evaluation that reads it."""

    def __init__(self, questions: int) -> None:
        self._questions, self._columns = questions, 0
        self._file = tempfile.TemporaryFile(prefix="feval-compare-", buffering=0)  # noqa: SIM115  it outlives this call
        finalize(self, self._file.close)
        self._shared: dict[str, Any] = {}

    def stored(self, evaluation: Evaluation) -> StoredEvaluation:
        """The same evaluation with its columns in the file; averages are kept, and ids shared with
        the others.
        """
        evaluation.to_dict()  # fills in the averages
        shares = evaluation.error_shares()
        columns = {name: getattr(evaluation, name) for name in NUMBERS}
        columns |= {name: getattr(shares, name) for name in _SHARES}
        values = {name: value for name, value in vars(evaluation).items() if name not in columns}
        if not self._shared:
            self._shared = {name: values[name] for name in ("question_ids", "question_keys")}
        return StoredEvaluation(self, self._places(columns), values | self._shared, shares.estimate)

    def column(self, place: Place) -> Floats | None:
        """The column at a place."""
        if not isinstance(place, int):
            return place
        offset = 8 * self._questions * place
        return np.asarray(np.memmap(self._file, np.float64, "r", offset, (self._questions,)))

    def _places(self, columns: Mapping[str, Floats | None]) -> dict[str, Place]:
        """Write columns, each distinct one once, and return their places."""
        written: list[tuple[Floats, int]] = []
        places: dict[str, Place] = {}
        for name, column in columns.items():
            if column is None or (column == column[0]).all():
                places[name] = (
                    None if column is None else np.broadcast_to(column[0], self._questions)
                )
            else:
                same = (place for other, place in written if np.array_equal(other, column))
                if (place := next(same, None)) is None:
                    place = self._write(column)
                    written.append((column, place))
                places[name] = place
        return places

    def _write(self, column: Floats) -> int:
        try:
            self._file.seek(8 * self._questions * self._columns)
            data = np.ascontiguousarray(column, np.float64).data.cast("B")
            while len(data):
                data = data[self._file.write(data) :]
        except OSError as error:
            raise StorageError(
                f"Column {self._columns + 1} of {self._questions:,} questions could not be written"
                f" to the temporary folder {tempfile.gettempdir()}: {error.strerror or error}. Set"
                " TMPDIR to a folder with space, or compare fewer points."
            ) from error
        self._columns += 1
        return self._columns - 1


class StoredEvaluation(Evaluation):
    """An evaluation whose numbers per question lie in a file; each column is read anew when it is
    asked for.
    """

    def __init__(
        self,
        file: ColumnFile,
        places: Mapping[str, Place],
        values: Mapping[str, Any],
        estimate: MonteCarloPart | None,
    ) -> None:
        shares = partial(_shares, file, places, estimate)
        vars(self).update(values, _file=file, _places=places, error_shares=shares)

    def __getattr__(self, name: str) -> Any:
        """A column; whatever else an evaluation has is found without this."""
        places = vars(self).get("_places", {})
        if name not in places:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self._file.column(places[name])


def _shares(
    file: ColumnFile, places: Mapping[str, Place], estimate: MonteCarloPart | None
) -> ErrorShares:
    return ErrorShares(**{name: file.column(places[name]) for name in _SHARES}, estimate=estimate)
