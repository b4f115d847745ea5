"""The baseline that every ratio is measured against, and the synthetic recording that both sides
read.

The baseline is written for this project, in the manner of the package of the FEval-TTC paper (arXiv
2511.01203): one zip whose members are JSON, one pydantic object per chain of thought,
`random.sample` on the global generator, a shallow copy of every object handed out by pydantic's
`copy`, `collections.Counter` for the vote. It keeps that package's choices and adds no slowness of
its own. One choice matters to the ratios: `copy` (deprecated since pydantic 2, and what the package
calls) costs several times `model_copy`, so `LLM.sample` takes either, the goals are stated for the
package's manner, and `replay.py` also prints the ratio against the thrifty copy.

The content is synthetic and seeded: 1319 questions x 40 CoTs (the size of GSM8K's test set), about
880 characters of English per CoT, 2 to 10 candidate answers per question, 3 % of the CoTs without
an answer, for 1 or 13 LLMs. It is generated one question at a time, so 600 MB of text never stand
in memory.
"""

from __future__ import annotations

import random
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel

LLM_NAMES = (
    "mistralai/Mixtral-8x7B-Instruct-v0.1",
    "deepseek-ai/DeepSeek-V3",
    "meta-llama/Llama-3.3-70B-Instruct",
    "meta-llama/Meta-Llama-3.1-405B-Instruct",
    "meta-llama/Llama-3.2-3B-Instruct",
    "meta-llama/Llama-3.2-1B-Instruct",
    "Qwen/Qwen2.5-1.5B-Instruct",
    "Qwen/Qwen2.5-32B-Instruct",
    "Qwen/Qwen2.5-72B-Instruct",
    "mistralai/Mixtral-8x22B-Instruct-v0.1",
    "gpt-3.5-turbo",
    "gpt-4o-mini",
    "o3-mini",
)
ARCHIVE_DATASET = "GSM8K"
DATASET = "gsm8k"
# of every synthetic LLM, in and out: stored dollars are never read back
USD_PER_TOKEN = (0.08e-6, 0.24e-6)


# -- the baseline: objects, load, one run
# ---------------------------------------------------------------------------


class Metadata(BaseModel):
    """What one CoT cost."""

    dollar_cost: float
    token_cost: float
    finish_reason: str


class CoT(BaseModel):
    """One chain of thought."""

    raw_text: str
    answer: str | None = None
    metadata: Metadata


class Request(BaseModel):
    """What was sent."""

    raw_text: str
    dollar_cost: float
    token_cost: float


class Response(BaseModel):
    """The chains of thought of one question."""

    cots: list[CoT]
    request: Request

    @property
    def answers(self) -> list[str | None]:
        """The answer of each CoT."""
        return [cot.answer for cot in self.cots]

    @property
    def dollar_cost(self) -> float:
        """USD of the request and of every CoT."""
        return self.request.dollar_cost + sum(cot.metadata.dollar_cost for cot in self.cots)


class Config(BaseModel):
    """The decoding."""

    name: str
    temperature: float
    max_tokens: int


class LLM(BaseModel):
    """All responses of one LLM."""

    config: Config
    responses: list[Response]

    def sample(self, question: int, n: int, *, thrifty: bool = False) -> Response:
        """`n` CoTs of one question, drawn without replacement from the global generator.

        Args:
            question: its row.
            n: how many; all of them, in recorded order, if there are no more.
            thrifty: copy with `model_copy` instead of the deprecated `copy`.
        """
        copy = _thrifty_copy if thrifty else _copy
        response = self.responses[question]
        if n >= len(response.cots):
            return copy(response)
        places = random.sample(list(range(len(response.cots))), k=n)
        return Response(
            request=copy(response.request), cots=[copy(response.cots[i]) for i in places]
        )


def _copy(model: Any) -> Any:
    return model.copy()


def _thrifty_copy(model: Any) -> Any:
    return model.model_copy()


class Entry(BaseModel):
    """One question."""

    answer: str
    question: str


class Dataset(BaseModel):
    """All questions."""

    data: list[Entry]
    datatype: str
    system_prompt: str | None = None


def load(archive: Path, llms: tuple[str, ...]) -> tuple[Dataset, list[LLM]]:
    """The baseline's load: every text of every LLM asked for becomes an object.

    Args:
        archive: the zip.
        llms: names of the LLMs.
    """
    with zipfile.ZipFile(archive) as members:

        def text(name: str) -> str:
            with members.open(name) as file:
                return file.read().decode("utf-8")

        dataset = Dataset.model_validate_json(text(f"dataset_{ARCHIVE_DATASET}.txt"))
        return dataset, [
            LLM.model_validate_json(text(f"LLM_{name}_dataset_{ARCHIVE_DATASET}.txt"))
            for name in llms
        ]


def self_consistency_run(
    dataset: Dataset, llm: LLM, n: int = 20, *, thrifty: bool = False
) -> tuple[float, float]:
    """One seeded run of self-consistency: accuracy and USD."""
    correct = 0
    usd = 0.0
    for question, entry in enumerate(dataset.data):
        response = llm.sample(question, n, thrifty=thrifty)
        votes = [answer for answer in response.answers if answer is not None]
        answer = Counter(votes).most_common(1)[0][0] if votes else None
        correct += answer == entry.answer
        usd += response.dollar_cost
    return correct / len(dataset.data), usd


# -- the synthetic content
# ------------------------------------------------------------------------------------------

# A paragraph is eight phrases, each in four wordings about three readings of the problem, with a
# small word between them; a CoT is three paragraphs. Which wordings and words a CoT takes is what
# makes it differ from its neighbours: the forty CoTs of a question deflate to about a sixth of
# their size, as real ones do.
PHRASES = (
    (
        "{name} has {a} {thing}",
        "We are told of {a} {thing} that belong to {name}",
        "{name} begins with {a} {thing}",
        "{name} keeps {a} {thing}",
    ),
    (
        "and another {b} are added later.",
        "and gets {b} more from a friend.",
        "to which we add the {b} that come afterwards.",
        "before {b} more arrive on the same day.",
    ),
    (
        "The sum is {a} + {b} = {ab},",
        "That makes {ab} {thing} in all,",
        "Adding them gives {ab},",
        "Altogether this is {ab} {thing},",
    ),
    (
        "and {c} of them are sold at the {place},",
        "but {name} gives {c} away,",
        "of which {c} go to the {place},",
        "and the {place} takes {c} of these,",
    ),
    (
        "leaving {ab} - {c} = {rest}.",
        "so that {rest} remain.",
        "and what is left is {rest}.",
        "hence we go on with {rest} {thing}.",
    ),
    (
        "If each one costs {d} dollars,",
        "At a price of {d} dollars for one,",
        "With {d} dollars paid for each,",
        "Since every piece is worth {d} dollars,",
    ),
    (
        "the value comes to {d} x {rest} = {value} dollars.",
        "we multiply and find {value}.",
        "{name} would pay {value} dollars.",
        "the product {rest} * {d} is {value}.",
    ),
    (
        "This can be checked by going backwards.\n",
        "We continue with the next part.\n",
        "We write that down and move on.\n",
        "That settles this step.\n",
    ),
)
BETWEEN = (
    " ",
    " now ",
    " then ",
    " also ",
    " first ",
    " simply ",
    " again ",
    " here ",
    " thus ",
    " next ",
    " later ",
    " so ",
)
NAMES = ("Maria", "Tomas", "Aiko", "Daniel", "Priya", "Lena", "Omar", "Grace", "Pavel", "Ines")
THINGS = (
    "apples",
    "marbles",
    "tickets",
    "pencils",
    "stamps",
    "bottles",
    "flowers",
    "cards",
    "cookies",
    "shells",
)
PLACES = ("market", "school", "library", "bakery", "harbour", "station", "museum", "garden")
PARAGRAPHS = 3
READINGS = 3
NO_ANSWER_SHARE = 0.03


@dataclass(frozen=True, slots=True)
class Pool:
    """The synthetic CoTs of one LLM on one question; `answers[i]` is `None` for a CoT without an
    answer.
    """

    question: str
    gold: str
    texts: list[str]
    answers: list[str | None]


@dataclass(frozen=True)
class Synthetic:
    """A seeded synthetic recording, generated on demand.

    Attributes:
        questions: how many.
        cots: per LLM and question.
        llms: names; what an LLM says depends on its name, so fewer LLMs say the same.
        seed: of everything.
    """

    questions: int = 1319
    cots: int = 40
    llms: tuple[str, ...] = LLM_NAMES[:1]
    seed: int = 0

    def question(self, index: int) -> tuple[str, list[str]]:
        """The question's text and its candidate answers, the gold one first."""
        rng = random.Random(f"{self.seed}/{index}")
        name, thing, place = rng.choice(NAMES), rng.choice(THINGS), rng.choice(PLACES)
        a, b, c = rng.randint(100, 900), rng.randint(10, 99), rng.randint(2, 9)
        text = (
            f"{name} has {a} {thing} and gets {b} more before going to the {place}, where {c} of"
            f" them are sold for {rng.randint(2, 20)} dollars each. How many dollars does {name}"
            f" have at the end of day {index}?"
        )
        candidates = [str(number) for number in rng.sample(range(10, 5000), k=rng.randint(2, 10))]
        return text, candidates

    def pools(self, llm: str) -> Iterator[Pool]:
        """The pools of one LLM in the order of the questions."""
        for index in range(self.questions):
            question, candidates = self.question(index)
            rng = random.Random(f"{self.seed}/{llm}/{index}")
            slots = _wordings(rng)
            strength = rng.betavariate(2.2, 1.0)
            weights = [strength, *((1 - strength) / rank for rank in range(1, len(candidates)))]
            texts, answers = [], []
            for answer in rng.choices(candidates, weights, k=self.cots):
                reasoning = "".join(
                    [
                        slot[byte % len(slot)]
                        for slot, byte in zip(slots, rng.randbytes(len(slots)), strict=True)
                    ]
                )
                lost = rng.random() < NO_ANSWER_SHARE
                texts.append(reasoning + ("I cannot tell." if lost else f"The answer is {answer}."))
                answers.append(None if lost else answer)
            yield Pool(question, candidates[0], texts, answers)


def _wordings(rng: random.Random) -> list[tuple[str, ...]]:
    slots = []
    for _ in range(PARAGRAPHS):
        readings = [_values(rng) for _ in range(READINGS)]
        for wordings in PHRASES:
            slots.append(
                tuple(wording.format_map(values) for values in readings for wording in wordings)
            )
            slots.append(BETWEEN)
    return slots


def _values(rng: random.Random) -> dict[str, str | int]:
    a, b, c, d = rng.randint(20, 900), rng.randint(10, 99), rng.randint(2, 9), rng.randint(2, 20)
    scene: dict[str, str | int] = {
        "name": rng.choice(NAMES),
        "thing": rng.choice(THINGS),
        "place": rng.choice(PLACES),
    }
    return scene | {
        "a": a,
        "b": b,
        "c": c,
        "d": d,
        "ab": a + b,
        "rest": a + b - c,
        "value": (a + b - c) * d,
    }


def words(text: str) -> int:
    """Tokens by the reference package's rule: 1.365 per word, rounded half to even."""
    return round(1.365 * len(text.split()))


# -- the same content, written both ways
# ----------------------------------------------------------------------------


def write_archive(content: Synthetic, archive: Path) -> None:
    """Write the content as the reference package stores it: a deflated zip of JSON members."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as members:
        entries = [content.question(index) for index in range(content.questions)]
        dataset = {
            "data": [{"answer": candidates[0], "question": text} for text, candidates in entries],
            "datatype": ARCHIVE_DATASET,
            "system_prompt": None,
        }
        members.writestr(f"dataset_{ARCHIVE_DATASET}.txt", orjson.dumps(dataset))
        members.writestr(
            f"dataset_{ARCHIVE_DATASET}_models.txt", orjson.dumps({"llms": list(content.llms)})
        )
        for llm in content.llms:
            responses = [_archived(pool) for pool in content.pools(llm)]
            member = {
                "config": {"name": llm, "temperature": 0.7, "max_tokens": 2048},
                "responses": responses,
            }
            members.writestr(f"LLM_{llm}_dataset_{ARCHIVE_DATASET}.txt", orjson.dumps(member))


def _archived(pool: Pool) -> dict[str, object]:
    usd_in, usd_out = USD_PER_TOKEN
    prompt_tokens = words(pool.question)
    cots = [
        {
            "raw_text": text,
            "answer": answer,
            "metadata": {
                "dollar_cost": usd_out * (tokens := words(text)),
                "token_cost": tokens,
                "finish_reason": "stop" if answer is not None else "max_tokens",
            },
        }
        for text, answer in zip(pool.texts, pool.answers, strict=True)
    ]
    request = {
        "raw_text": pool.question,
        "dollar_cost": usd_in * prompt_tokens,
        "token_cost": prompt_tokens,
    }
    return {"cots": cots, "request": request}


def write_recording(content: Synthetic, out: Path) -> None:
    """Write the content as a feval recording."""
    from feval.recording import DatasetInfo, LLMInfo, PoolRows, Question, RecordingWriter

    def rows(llm: str) -> Iterator[PoolRows]:
        for index, pool in enumerate(content.pools(llm)):
            yield PoolRows(
                question_id=f"{DATASET}/{index}",
                texts=pool.texts,
                raw_answers=pool.answers,
                answers=pool.answers,
                output_tokens=[words(text) for text in pool.texts],
                finish_reasons=[
                    "stop" if answer is not None else "length" for answer in pool.answers
                ],
                prompt=orjson.dumps([{"role": "user", "content": pool.question}]).decode(),
                prompt_tokens=words(pool.question),
            )

    questions = []
    for index in range(content.questions):
        text, candidates = content.question(index)
        questions.append(Question(f"{DATASET}/{index}", text, candidates[0], candidates[0]))
    info = DatasetInfo(DATASET, "synthetic, the size of GSM8K", "number", "synthetic")
    with RecordingWriter(out, operation={"name": "synthetic", "seed": content.seed}) as writer:
        writer.add_dataset(info, questions)
        for llm in content.llms:
            writer.add_pools(DATASET, LLMInfo(llm, 0.7, 2048), "words", rows(llm))
