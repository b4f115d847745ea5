"""Self-refine: an LLM criticises its solution and corrects it, until the answer stays.

Source: Madaan et al. 2023, "Self-Refine: Iterative Refinement with Self-Feedback", algorithm 1,
https://arxiv.org/abs/2303.17651.

    feval record --dataset tiny_sums --llm feval/tiny-42k --first 20 --samples 5
        --protocol examples/self_refine.md --out refined
    feval run examples/self_refine.py:self_refine --recording refined
"""

FEEDBACK = "Check each step of your solution, and name every mistake."
REFINE = "Correct the mistakes that you named, and write the whole solution again with its answer."


def self_refine(question, llm, rounds=2):  # noqa: ARG001  the LLM knows it
    """Return the first answer that a refinement does not change, or the last one."""
    [solution] = llm.sample(1).cots
    for _ in range(rounds):
        answer = solution.answer
        for message in (FEEDBACK, REFINE):
            if not solution.text:  # there is nothing to reply to
                return answer
            [solution] = llm.reply(solution, message).cots
        if solution.answer == answer:
            break
    return solution.answer
