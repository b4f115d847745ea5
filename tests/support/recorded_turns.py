"""A small recording of turns, written out."""

from random import Random

from small import pool, write_rows

from feval.recording import ScorerInfo, ScoreRows

REVISE, WHY = ('[{"role":"user","content":"Revise."}]', '[{"role":"user","content":"Why?"}]')


def chains(index):
    """Two CoTs: the first is replied to in two ways, and one of these once more."""
    return pool(
        index,
        ["4", "5", "4", "4", "6"],
        parents=[None, None, 0, 0, 2],
        ends=[True] * 5,
        messages=[None, None, REVISE, WHY, REVISE],
        turn_prompt_tokens=[None, None, 30, 31, 50],
    )


ROWS = [chains(0), pool(1, ["4"], parents=[None], ends=[True]), chains(2)]


def write_turns(out, rows=ROWS):
    return write_rows(out, ["4"] * 3, ("m@revise", rows))


def write_full_turns(out, golds, *, first=8, branch=2):
    """Conversations of three turns, scored by "prm"; the second turn has `branch` samples, and one
    question has no answer.
    """
    draw = Random(4)  # noqa: S311  it makes up conversations
    pools, scores = [], []
    for index in range(len(golds)):
        parents = [None] * first
        parents += [place for place in range(first) for _ in range(branch)]
        parents += range(first, len(parents))
        size = len(parents)
        answers = [
            draw.choice(["a", "a", "b", "c", None]) if index != 5 else None for _ in range(size)
        ]
        messages = [
            None if parent is None else REVISE if parent < first else WHY for parent in parents
        ]
        tokens = [None if parent is None else draw.randrange(20, 60) for parent in parents]
        turns = {
            "parents": parents,
            "ends": [True] * size,
            "messages": messages,
            "turn_prompt_tokens": tokens,
        }
        turns |= {"extra": {"duration_s": [draw.randrange(1, 80) / 8 for _ in answers]}}
        pools.append(pool(index, answers, tokens=[draw.randrange(1, 40) for _ in answers], **turns))
        values = [draw.choice([None, 0.0, 0.2, 0.4, 0.4, 0.9]) for _ in answers]
        scores.append(ScoreRows(f"toy/{index}", range(size), values))
    llm = "gpt-3.5-turbo@revise"
    return write_rows(
        out, golds, (llm, pools), scores={llm: scores}, scorer=ScorerInfo("prm", "test")
    )
