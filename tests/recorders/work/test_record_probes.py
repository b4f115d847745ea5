"""Recorded probes: answers to prefixes of complete CoTs, through the journal, the sealed recording
and every resumption.
"""

import json
import math

import numpy as np
import pytest
from command_line import feval
from places import read_data
from watched import SEED, Watched, gone_on, recorded, tiny_task

from feval.errors import FevalError, StorageError, UsageError
from feval.recording import verify_recording
from recorders import tiny
from recorders.asking.pace import Limits
from recorders.asking.samples import Probing, prefix
from recorders.errors import CostLimitError, MissingError
from recorders.journal import Journal
from recorders.request import Completion, Decoding, Message, Prefill, Request
from recorders.tiny.model import ANSWER, END, QUESTION
from recorders.work.settings import load_questions

DATASET, LLM, EVERY, CUE = "tiny_sums", "feval/tiny-42k", 12, " The answer is"
QUESTIONS, SAMPLES = 3, 3


def task(probing=True, *, samples=SAMPLES, every=EVERY):
    return tiny_task(QUESTIONS, samples=samples, probe_every=every if probing else None)


@pytest.fixture(scope="module")
def probed(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("probes") / "r", task())


def rows_of(recording):
    return list(recording.probe_rows(DATASET, LLM))


def drawn(question):
    decoding = tiny.TinyDecoding(max_tokens=100)
    return tiny.sample(tiny.load_model(LLM), question, range(SEED, SEED + SAMPLES), decoding)


def greedy(question, prefix):
    """What the model writes behind a prefix and the cue, by its logits alone, and the probability
    of each token.
    """
    model, tokenizer = tiny.load_model(LLM), tiny.tokenizer()
    tokens = [QUESTION, *tokenizer.encode(f" {question}"), ANSWER, *prefix, *tokenizer.encode(CUE)]
    written = []
    chances = []
    while len(written) < 20 and END not in written:
        logits = model.read(tokens + written).logits
        shares = np.exp(logits - logits.max())
        written.append(int(np.argmax(logits)))
        chances.append(float(shares.max() / shares.sum()))
    return tokenizer.decode(written), chances


def test_each_probe_is_what_the_model_answers_behind_the_tokens_so_far(probed):
    assert verify_recording(probed.path).ok
    assert probed.probes_record(DATASET, LLM) | {"no_answer": 0, "output_tokens": 0} == {
        "dataset": DATASET, "llm": LLM, "cue": CUE, "interval": EVERY, "traces": 9, "probes": 30,
        "no_answer": 0, "output_tokens": 0,
    }  # fmt: skip
    texts = {question.id: question.text for question in probed.questions(DATASET)}
    for probes in rows_of(probed):
        question = texts[probes.question_id]
        cots = drawn(question)
        places = [
            (sample, t)
            for sample, cot in enumerate(cots)
            for t in range(1, len(cot.tokens))
            if t % EVERY == 0
        ]
        assert list(zip(probes.sample_indices, probes.offsets, strict=True)) == places
        for place in (0, len(places) - 1):
            sample, offset = places[place]
            text, chances = greedy(question, cots[sample].tokens[:offset].tolist())
            assert (probes.texts[place], probes.output_tokens[place]) == (text, len(chances))
            answer = probes.raw_answers[place]
            if answer is not None:
                assert text.startswith(f" {answer}.")  # a token for each digit
                expected = math.prod(chances[1 : 1 + len(answer)])
                assert probes.confidences[place] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("most", [5, 20])
def test_a_run_that_stops_anywhere_goes_on_without_asking_anything_twice(probed, tmp_path, most):
    again, first, second = gone_on(tmp_path / "r", task(), most, Limits(2, samples_per_request=1))
    assert len(first.cots) + len(second.cots) == QUESTIONS * SAMPLES
    assert len(first.probes) + len(second.probes) == sum(
        len(rows.offsets) for rows in rows_of(probed)
    )
    assert again.hash == probed.hash


def test_cots_without_probes_get_them_and_are_not_asked_for_again(probed, tmp_path):
    plain = recorded(tmp_path / "plain", task(probing=False))
    with pytest.raises(
        StorageError,
        match=r"is sealed without probes, and probes every 12 tokens were asked for\..*start='",
    ):
        recorded(tmp_path / "plain", task())
    backend = Watched()
    grown = recorded(tmp_path / "grown", task(), backend, start=plain.path)
    assert backend.cots == []
    assert rows_of(grown) == rows_of(probed)
    backend = Watched()
    finer = recorded(tmp_path / "finer", task(every=EVERY // 2), backend, start=grown.path)
    offsets = [offset for rows in rows_of(finer) for offset in rows.offsets]
    assert backend.cots == []
    assert len(backend.probes) == sum(offset % EVERY > 0 for offset in offsets) < len(offsets)
    assert [rows.confidences is None for rows in rows_of(finer)] == [False] * QUESTIONS


def test_a_complete_recording_is_left_alone_and_one_with_other_probes_refused(probed):
    backend = Watched()
    assert recorded(probed.path, task(), backend).hash == probed.hash
    assert recorded(probed.path, task(probing=False), backend).hash == probed.hash
    assert (backend.cots, backend.probes) == ([], [])
    with pytest.raises(StorageError, match="is sealed with probes made in another way"):
        recorded(probed.path, task(every=6), backend)


def test_what_comes_behind_a_prefix_decides_nothing():
    text = "<think>\nfirst second third\n</think>\nThe answer is 4."
    for length in range(8, 30):
        for rest in ("", "other", "</think> 5", "<think>", "\n</think>\n\n\\boxed{7}"):
            record = {"text": text[:length] + rest}
            assert prefix(record, length, "think") == prefix({"text": text}, length, "think")


@pytest.mark.parametrize(
    ("text", "apart", "cut", "opening", "begun", "closing"),
    read_data("replies.json")["cut thoughts"],
)
def test_a_thought_that_is_cut_is_closed_before_the_cue(text, apart, cut, opening, begun, closing):
    assert prefix({"text": text, "reasoning": apart}, cut, None) == (
        Prefill(begun, opening),
        closing,
    )


def test_the_journal_refuses_probes_of_nothing(tmp_path):
    request = Request("d", "q", (Message("user", "2 + 2?"),), "m", Decoding())
    reply = Completion("4", "stop")
    with Journal.open(tmp_path / "j", {}) as journal:
        journal.add(request, request.key(), [0], [reply], recorded_at="")
        for _ in range(2):
            journal.add_probe("way", request.key(), 0, 500, reply, recorded_at="")
        journal.commit()
        assert journal.totals.probes == 2
    with pytest.raises(
        FevalError,
        match=r"Line 5 .* is a probe of a CoT that is not there, or one that comes again",
    ):
        Journal.open(tmp_path / "j", {})


def test_probes_count_towards_the_cost_limit_and_the_mode(tmp_path):
    plain = recorded(tmp_path / "plain", task(probing=False), keep_journal=True)
    folder = tmp_path / "plain.journal"
    with pytest.raises(
        MissingError, match="lacks 30 of 30 probes, and the mode 'none' asks for nothing"
    ):
        recorded(tmp_path / "r", task(), mode="none", journal=folder)
    with pytest.raises(CostLimitError, match="probes are recorded"):
        recorded(tmp_path / "r", task(), journal=folder, cost_limit_usd=2e-5)
    assert recorded(tmp_path / "r", task(), journal=folder).llm_names(DATASET) == plain.llm_names(
        DATASET
    )


def test_a_dry_run_prices_probes_with_and_without_a_prefix_cache(tmp_path):
    options = (
        "--dataset tiny_sums --llm feval/tiny-42k --first 2 --samples 3 --max-tokens 50"
        " --probe-every 20 --json --dry-run"
    )
    account = json.loads(feval(f"record {options} --out {tmp_path}/r").stdout)["probes"]
    words = [len(question.text.split()) for question in load_questions(DATASET, first=2)]
    # 6 CoTs of at most 50 tokens have 2 probes each, after 20 and 40; the cue has 3 words.
    assert account["probes"] == 12
    assert account["output_tokens"] == 240
    assert account["uncached_prompt_tokens"] == 12 * 4  # 1.365 tokens per word, rounded
    assert account["prompt_tokens"] == pytest.approx(
        6 * 60 + 12 * 4 + 6 * 1.365 * sum(words), abs=12
    )
    assert account["usd_cached"] < account["usd"]


def test_wrong_settings_of_probes_are_refused_before_anything_is_asked():
    for fields, message in (
        ({"every": 0, "cue": "so"}, "probe_every is a number of tokens, 1 or more; 0 was given"),
        ({"every": 5, "cue": " "}, "The cue of the probes is empty"),
        ({"every": 5, "cue": "so", "template": "no place"}, "probe_template holds"),
    ):
        with pytest.raises(FevalError, match=message):
            Probing(**fields)
    with pytest.raises(UsageError, match="probe_cue is for probes; add `probe_every` N"):
        tiny_task(1, probe_cue="so")
    assert tiny_task(1, probe_cue="so", probe_every=9).probing == Probing(9, "so")
