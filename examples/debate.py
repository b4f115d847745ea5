"""A debate: LLMs solve a question, see each other's solutions and solve it again, until they agree.

Source: Du et al. 2023, "Improving Factuality and Reasoning in Language Models through Multiagent
Debate", https://arxiv.org/abs/2305.14325.

What one LLM is told is what the others wrote, so the debate is recorded while it runs live, here
between models of feval's own:

    python examples/debate.py debated
    feval run examples/debate.py:debate --recording debated --llm feval/tiny-42k@debate
        --llm feval/tiny-160k@debate
"""

import sys

from feval import plurality

OTHERS = (
    "Other agents solved the same question:\n\n{solutions}\n\nCompare, and write your solution"
    " again with its answer."
)


def debate(question, *llms, rounds=2):  # noqa: ARG001  the LLMs know it
    """Return the answer of most LLMs after at most so many rounds in which each sees what the
    others wrote.
    """
    solutions = [llm.sample(1).cots[0] for llm in llms]
    for _ in range(rounds):
        if len({solution.answer for solution in solutions}) == 1 or not all(
            solution.text for solution in solutions
        ):
            break
        texts = [solution.text for solution in solutions]
        others = ["\n\n".join(texts[:place] + texts[place + 1 :]) for place in range(len(llms))]
        solutions = [
            llm.reply(solution, OTHERS.format(solutions=other)).cots[0]
            for llm, solution, other in zip(llms, solutions, others, strict=True)
        ]
    return plurality([solution.answer for solution in solutions])


def record(out, first=20):
    """Record a debate of two of feval's own models; another run goes on where the first was
    stopped.
    """
    from recorders.live import record_method
    from recorders.work.settings import RecordingSettings, load_questions, make_backend, make_task

    questions = load_questions("tiny_sums", first=first)
    names = ["feval/tiny-42k@debate", "feval/tiny-160k@debate"]
    tasks = [make_task(RecordingSettings("tiny_sums", name), questions) for name in names]
    record_method(debate, tasks, [make_backend("tiny") for _ in tasks], out, prices="tiny-2026-11")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python examples/debate.py OUT")
    record(sys.argv[1])
