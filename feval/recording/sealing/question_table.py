"""The questions of a dataset in little memory: what checking, voting and the manifest need of them,
without texts.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from feval.recording.content import Question
from feval.recording.layout.flat import offsets_of
from feval.recording.votes import name_key


class Texts(Sequence[str]):
    """A list of strings that only grows, end to end in UTF-8."""

    def __init__(self) -> None:
        self._data, self._ends = bytearray(), array("Q", [0])

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self._data[self._ends[index] : self._ends[index + 1]].decode()

    def append(self, text: str) -> None:
        """Add one."""
        self._data += text.encode()
        self._ends.append(len(self._data))

    def arrays(self) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.unsignedinteger[Any]]]:
        """Return the strings end to end, and where each starts and the last one ends."""
        return np.frombuffer(bytes(self._data), np.uint8), offsets_of(np.diff(np.array(self._ends)))


class QuestionTable:
    """Ids, golds and keys of a dataset's questions, in their order.

    Attributes:
        dataset: id of the dataset.
        ids: the questions' ids.
        with_gold: how many have a gold answer that could be read.
    """

    def __init__(self, dataset: str, questions: Iterable[Question] = ()) -> None:
        self.dataset = dataset
        self.ids = Texts()
        self.with_gold = 0
        self._golds, self._has_gold = Texts(), bytearray()
        self._keys, self._text_keys = array("Q"), array("Q")
        for question in questions:
            self.add(question)

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, question: Question) -> None:
        """Add the next question."""
        self.ids.append(question.id)
        self._golds.append(question.answer_key or "")
        self._has_gold.append(question.answer_key is not None)
        self.with_gold += question.answer_key is not None
        self._keys.append(name_key("feval/question", self.dataset, question.id))
        self._text_keys.append(name_key(question.text))

    def gold(self, row: int) -> str | None:
        """Return the normal form of a question's gold answer, if it has any."""
        gold: str = self._golds[row]
        return gold if self._has_gold[row] else None

    @property
    def keys(self) -> npt.NDArray[np.uint64]:
        """[Q] what draws are made from."""
        return np.array(self._keys, np.uint64)

    @property
    def text_keys(self) -> npt.NDArray[np.uint64]:
        """[Q] what tells two questions of one id apart."""
        return np.array(self._text_keys, np.uint64)

    def rows(self, keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.intp]:
        """Return the rows of some of the questions, by their keys."""
        order = np.argsort(self.keys, kind="stable")
        return order[np.searchsorted(self.keys, keys, sorter=order)]

    def repeated_id(self) -> str | None:
        """Return an id that two questions have, if there is any."""
        keys = self.keys
        order = np.argsort(keys, kind="stable")
        for at in np.flatnonzero(keys[order[1:]] == keys[order[:-1]]).tolist():
            if self.ids[int(order[at])] == self.ids[int(order[at + 1])]:
                return str(self.ids[int(order[at])])
        return None
