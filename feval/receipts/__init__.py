"""Receipts: what numbers were computed from, and how they are computed again."""

from typing import TYPE_CHECKING

from feval.lazy import lazy_names

if TYPE_CHECKING:
    from feval.receipts.document import receipt as receipt
    from feval.receipts.grading import Grade as Grade, grade_answers as grade_answers
    from feval.receipts.repricing import reprice as reprice
    from feval.receipts.verifying import (
        ReceiptCheck as ReceiptCheck,
        verify_receipt as verify_receipt,
    )

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "document": "receipt",
        "repricing": "reprice",
        "verifying": "ReceiptCheck verify_receipt",
        "grading": "Grade grade_answers",
    },
)
