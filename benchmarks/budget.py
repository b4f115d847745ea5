"""Policies that spend a budget: steps of the environment, and the backward induction."""

from __future__ import annotations

import numpy as np

from benchmarks import reference
from benchmarks.measure import Goal, Workspace, cpu_ms

STEPS = 20_000
QUESTIONS, DRAWS, COTS = 100, 100, 8


def goals(workspace: Workspace) -> list[Goal]:
    """The environment on two LLMs of the synthetic recording; the induction on random answers."""
    from feval.evaluation.environment import ASK_AGAIN, NEXT_LLM, STOP, BudgetEnvironment
    from feval.methods.budget_induction import Paths, induct
    from feval.replay import load

    names = reference.LLM_NAMES[:2]
    dataset, llms = load(reference.DATASET, names, workspace.recording(2))
    game = BudgetEnvironment(dataset, llms)

    def play() -> None:
        """Ask each LLM twice, then stop."""
        over = True
        for step in range(STEPS):
            if over:
                game.reset()
            action = (NEXT_LLM, ASK_AGAIN, NEXT_LLM, ASK_AGAIN, STOP)[step % 5]
            _, _, over, _, _ = game.step(action)

    draw = np.random.default_rng(0)
    shape = COTS, QUESTIONS * DRAWS
    codes = [draw.geometric(0.4, shape).astype(np.int16) for _ in names]
    costs = [np.full(shape, cost) for cost in (1.0, 3.0)]
    question = np.repeat(np.arange(QUESTIONS), DRAWS)

    def plan() -> None:
        induct(Paths(codes, costs, question * 0 + 1, question), 0.02)

    ms = cpu_ms({"play": play, "plan": plan})
    steps = 1e3 * STEPS / ms["play"]
    return [
        Goal("budget environment, two LLMs", steps, 50_000, "/s", True),
        Goal("induction, 100 questions x 100 draws, 8 + 8 CoTs", ms["plan"] / 1e3, 1, "s"),
    ]
