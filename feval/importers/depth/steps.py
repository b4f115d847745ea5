"""Trees of generic steps: from steps that name the one before to steps in the order of a
recording.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from feval.errors import ConflictError, SourceError


def steps_decoding(stated: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an LLM's decoding says of its steps: the string that ends one, and which were
    gone on from.
    """
    known = {
        name: stated[f"step_{name}"] for name in ("stop", "policy") if f"step_{name}" in stated
    }
    return {"steps": known} if known else {}


def ordered_tree(
    steps: Sequence[Mapping[str, Any]], question: str
) -> tuple[list[Mapping[str, Any]], list[int | None], list[bool]]:
    """Return the steps of a question, each behind its parent and beside its siblings, with their
    parents and ends.

    Siblings stay in their order. What is no tree is a `SourceError`, a name that comes twice a
    `ConflictError`.
    """
    children: dict[str | None, list[Mapping[str, Any]]] = {}
    by_name: dict[str, Mapping[str, Any]] = {}
    for step in steps:
        if by_name.setdefault(step["node"], step) is not step:
            raise ConflictError(
                f"Question {question!r} has the node {step['node']!r:.60} twice; give each its own"
                " name."
            )
        children.setdefault(step.get("parent"), []).append(step)
    for step in steps:
        where = f"The node {step['node']!r:.60} of question {question!r}"
        parent = by_name.get(step["parent"]) if "parent" in step else None
        if "parent" in step and parent is None:
            raise SourceError(
                f"{where} has the parent {step['parent']!r:.60}, and the question has no such node."
            )
        if "turn_messages" in step and not (parent is not None and parent["ends"] and step["ends"]):
            raise SourceError(
                f"{where} has 'turn_messages' and is no turn: it should end, 'ends', and so should"
                " the CoT that it replies to, 'parent'."
            )
        if parent is not None and parent["ends"] and "turn_messages" not in step:
            raise SourceError(
                f"{where} goes on from the node {step['parent']!r:.60}, which ends a solution or"
                " has an answer."
            )
        if step.get("answer") is not None and not step["ends"]:
            raise SourceError(
                f"{where} has an answer and 'ends' is false; only a step that ends a solution has"
                " an answer."
            )
    ordered = list(children.get(None, ()))
    for step in ordered:  # it grows as it goes
        ordered += children.get(step["node"], ())
    if len(ordered) < len(steps):
        reached = {step["node"] for step in ordered}
        lost = next(name for name in by_name if name not in reached)
        raise SourceError(
            f"The node {lost!r:.60} of question {question!r} comes back to itself from parent to"
            " parent; a first step has no 'parent'."
        )
    places = {step["node"]: place for place, step in enumerate(ordered)}
    parents = [places[step["parent"]] if "parent" in step else None for step in ordered]
    return ordered, parents, [step["ends"] for step in ordered]
