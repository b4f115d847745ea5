"""A receipt that is no regular file."""

from __future__ import annotations

import os

import pytest

from feval.errors import UsageError
from feval.receipts.document import read_receipt


def test_a_pipe_in_place_of_a_receipt_is_refused_at_once(tmp_path):
    pipe = tmp_path / "receipt.json"
    os.mkfifo(pipe)
    with pytest.raises(UsageError, match="it is no regular file"):
        read_receipt(pipe)
