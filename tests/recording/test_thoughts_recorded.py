"""Thoughts through every door: only replies are read, and the raw texts can be rebuilt from what is
on the disk.
"""

import hashlib
import json
from dataclasses import replace

import pytest
from command_line import feval
from parcels import Parcels
from places import read_data
from recording_doubles import FakeBackend, cots
from small import import_rows

from feval import load
from feval.answers.thoughts import mark_tokens, split
from feval.cards.cards import llm_card
from feval.cards.tokens import SPLIT_USAGE, USAGE
from feval.errors import UsageError
from feval.recording import (
    DatasetInfo,
    LLMInfo,
    PoolRows,
    Question,
    RecordingWriter,
    extract,
    open_recording,
    verify_recording,
)
from feval.recording.verify import Part, check_leaf
from recorders.asking.pace import Limits
from recorders.asking.samples import LimitWatch
from recorders.backends import replies
from recorders.backends.local import decoded
from recorders.journal import Journal, journal_folder
from recorders.live import live
from recorders.request import Completion, Decoding, Message
from recorders.work.record import RecordingTask, record_dataset
from recorders.work.seal import JournaledLLM, seal
from recorders.work.settings import default_decoding

FORMS = read_data("replies.json")

RAW = [
    "<think>\nIt is \\boxed{7}.\n</think>\n\nThe answer is 4.",
    "It is 7, or so.</think>The answer is 4.",
    "<think>The answer is 7. No,",
    "<think>The answer is 7.</think>\n",
    "The answer is 5.",
]
REPLIES = ["The answer is 4.", "The answer is 4.", "", "", "The answer is 5."]
REASONING = [
    "It is \\boxed{7}.",
    "It is 7, or so.",
    "The answer is 7. No,",
    "The answer is 7.",
    None,
]
ANSWERS = ["4", "4", None, None, "5"]
REASONS = ["stop", "stop", "length", "stop", "stop"]
QUESTION = Question("sums/0", "Two and two?", "4", "4")
LLM = "org/thinker"


def one_pool(recording, llm=LLM):
    (pool,) = recording.pools("sums", llm)
    return pool


def assert_split(recording):
    """What every door makes of the same raw replies."""
    pool = one_pool(recording)
    assert list(pool.texts) == REPLIES
    assert pool.reasoning == REASONING
    assert list(pool.answers) == ANSWERS
    assert list(pool.finish_reasons) == REASONS
    assert pool.raw_texts() == RAW
    assert verify_recording(recording.path).ok


def imported(tmp_path, samples, llm=LLM, **options):
    line = {
        "id": "sums/0",
        "question": "Two and two?",
        "answer": "4",
        "llm": llm,
        "samples": samples,
    }
    out = tmp_path / f"imported-{len(list(tmp_path.iterdir()))}"
    options = {"dataset": "sums", "answer_kind": "number"} | options
    return open_recording(import_rows(out, [line], **options))


def written(out, *, texts, llms=(LLM,), **fields):
    """A recording as it was made before thoughts were split off."""
    size = len(texts)
    with RecordingWriter(out, operation={"name": "test"}) as writer:
        writer.add_dataset(DatasetInfo("sums", "Sums", "number", "old-1"), [QUESTION])
        for llm in llms:
            own = texts if llm == LLM else ["The answer is 4."] * size
            pool = PoolRows(
                "sums/0",
                own,
                ["7"] * size,
                ["7"] * size,
                [9] * size,
                ["unknown"] * size,
                "[]",
                3,
                **fields,
            )
            writer.add_pools("sums", LLMInfo(llm), "words", [pool])
    return out


def leaf_of(recording, part):
    (digest,) = [
        leaf["sha256"] for leaf in recording.manifest.raw["leaves"] if leaf["part"] == part
    ]
    return str(digest)


def info(path, *options):
    return feval("info", path, *options).stdout


def test_an_import_reads_replies_and_keeps_thoughts_apart(tmp_path):
    reasons = ["stop", "stop", None, "stop", "stop"]
    samples = [
        {"text": text, "finish_reason": reason} for text, reason in zip(RAW, reasons, strict=True)
    ]
    recording = imported(tmp_path, samples)
    assert_split(recording)
    notes = recording.manifest.raw["notes"]
    assert (
        "Texts with thoughts, which were split off (answers are read in the replies alone): 4."
        in notes
    )
    assert "CoTs that end in their thoughts, without a reply, which is no answer: 2." in notes
    # The tokens are those of the raw text: thoughts were paid for. Two words and a mark are 3 *
    # 1.365 tokens.
    (cut,) = one_pool(imported(tmp_path, [{"text": "<think> two words"}])).output_tokens
    assert cut == 4


def test_an_answer_that_was_stored_does_not_stand_in_for_a_reply(tmp_path):
    samples = [{"text": text, "answer": "7"} for text in RAW]
    recording = imported(tmp_path, samples)
    assert list(one_pool(recording).answers) == ["7", "7", None, None, "7"]
    assert any(
        "may come from a thought; `--answers text` reads the replies" in n
        for n in recording.manifest.raw["notes"]
    )
    assert list(one_pool(imported(tmp_path, samples, answers="text")).answers) == ANSWERS
    verbatim = imported(tmp_path, samples, answer_kind="verbatim")  # what the authors counted
    assert list(one_pool(verbatim).answers) == ["7"] * 5


def test_a_stored_answer_does_not_stand_in_for_a_reply_where_thoughts_have_a_field_of_their_own(
    tmp_path,
):
    texts = ["", " \n", "7", None]
    samples = [
        {"text": text, "reasoning": "It is 7.", "answer": "7", "tokens": 3} for text in texts
    ]
    samples.append({"text": "", "answer": "7", "tokens": 3})  # neither text nor thoughts were kept
    assert list(one_pool(imported(tmp_path, samples)).answers) == [None, None, "7", "7", "7"]


def test_the_generic_import_takes_a_reasoning_field(tmp_path):
    samples = [
        {"text": "The answer is 4.", "reasoning": "It is 7."},
        {"text": "The answer is 5.", "reasoning": None},
    ]
    recording = imported(tmp_path, samples)
    pool = one_pool(recording)
    assert (pool.reasoning, pool.reasoning_marks) == (["It is 7.", None], None)
    assert list(pool.answers) == ["4", "5"]
    assert list(pool.output_tokens) == [9, 5]  # words: 1.365 * 4 is 5.46, and 1.365 * 3 is 4.095
    assert not any("not imported" in note for note in recording.manifest.raw["notes"])


def test_thoughts_of_a_field_stand_before_those_of_the_text(tmp_path):
    pool = one_pool(
        imported(tmp_path, [{"text": "<think>b</think>The answer is 4.", "reasoning": "a"}])
    )
    assert pool.reasoning == ["ab"]
    assert pool.raw_texts() == ["<think>b</think>The answer is 4."]
    assert pool.reasoning_apart() == ["a"]


CUT = [
    ("So 5, no, 6", "length"),
    ("The answer is 5.", "stop"),
    ("It is 7, no.\n</think>\nThe answer is 4.", "stop"),
]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
@pytest.mark.parametrize("executed", [False, True])
def test_a_cot_that_is_cut_off_in_a_thought_of_the_template_has_no_reply(
    tmp_path, monkeypatch, order, executed
):
    lines = [
        {
            "id": f"q{n}",
            "question": f"Q{n}?",
            "answer": "4",
            "samples": [{"text": CUT[n][0], "finish_reason": CUT[n][1]}],
        }
        for n in order
    ]
    options = {"dataset": "sums", "answer_kind": "number", "llm": LLM}
    executor = Parcels() if executed else None
    out = import_rows(tmp_path / "new", lines, **options, executor=executor)
    with monkeypatch.context() as patch:  # as it was imported before this was known
        patch.setattr("feval.importers.pools.opened_by_template", lambda *_: False)
        old = import_rows(tmp_path / "old", lines, **options)
    recordings = [open_recording(out), open_recording(extract(old, tmp_path / "again").path)]
    for recording in recordings:
        pools = {pool.question_id: pool for pool in recording.pools("sums", LLM)}
        assert [list(pools[f"q{n}"].texts) for n in range(3)] == [
            [""],
            ["The answer is 5."],
            ["The answer is 4."],
        ]
        assert [pools[f"q{n}"].answers[0] for n in range(3)] == [None, "5", "4"]
        assert [pools[f"q{n}"].raw_texts()[0] for n in range(3)] == [text for text, _ in CUT]
        assert verify_recording(recording.path).ok
    assert recordings[0].hash == recordings[1].hash
    before = {pool.question_id: pool.answers[0] for pool in open_recording(old).pools("sums", LLM)}
    assert before == {"q0": "6", "q1": "5", "q2": "4"}


def test_a_cot_without_a_mark_keeps_its_reply_where_no_other_shows_that_the_template_opens(
    tmp_path,
):
    samples = [
        {"text": "So 5, no, 6", "finish_reason": "length"},
        {"text": "<think>a</think>5", "finish_reason": "stop"},
    ]
    assert list(one_pool(imported(tmp_path, samples)).answers) == ["6", "5"]


def test_a_recorded_finish_reason_stays(tmp_path):
    samples = [
        {"text": "<think>7", "finish_reason": reason} for reason in ("stop", "content_filter", None)
    ]
    assert list(one_pool(imported(tmp_path, samples)).finish_reasons) == [
        "stop",
        "content_filter",
        "length",
    ]


def test_a_recording_without_marks_keeps_its_hash_and_one_with_marks_counts_them(tmp_path):
    plain = open_recording(written(tmp_path / "plain", texts=["4"], reasoning=["hm"]))
    assert leaf_of(plain, "reasoning") == hashlib.sha256(b'["sums/0",["hm"]]\n').hexdigest()
    check_leaf(plain, Part("reasoning", "sums", LLM))
    marked = imported(tmp_path, [{"text": "<think>hm</think>The answer is 4."}, {"text": "4"}])
    line = '["sums/0",["hm",null],[[{"closing":"</think>","length":2,"opening":"<think>","reply_offset":0}],null]]\n'  # noqa: E501
    assert leaf_of(marked, "reasoning") == hashlib.sha256(line.encode()).hexdigest()


def test_marks_that_do_not_fit_are_not_written(tmp_path):
    pool = one_pool(imported(tmp_path, [{"text": RAW[0]}]))
    with pytest.raises(UsageError, match="the marks of its thoughts do not fit its texts"):
        written(
            tmp_path / "wrong", texts=["4"], reasoning=["hm"], reasoning_marks=pool.reasoning_marks
        )


def test_info_shows_unclosed_thoughts_and_empty_replies_where_there_are_any(tmp_path):
    recording = imported(tmp_path, [{"text": text} for text in RAW])
    (pair,) = json.loads(info(recording.path, "--json"))["pairs"]
    assert (pair["unclosed_thoughts"], pair["empty_replies"]) == (1, 1)
    assert (pair["unclosed_thoughts_rate"], pair["empty_replies_rate"]) == (0.2, 0.2)
    assert "unclosed thoughts %" in info(recording.path)
    assert "empty replies %" in info(recording.path)
    assert "thoughts %" not in info(imported(tmp_path, [{"text": "4"}]).path)


def test_extract_splits_texts_and_links_the_others(tmp_path):
    old = written(tmp_path / "old", texts=RAW, llms=(LLM, "org/plain"))
    result = extract(old, tmp_path / "new")
    new = open_recording(tmp_path / "new")
    pool = one_pool(new)
    assert (list(pool.texts), pool.reasoning, list(pool.answers)) == (REPLIES, REASONING, ANSWERS)
    assert list(pool.finish_reasons) == ["unknown", "unknown", "length", "unknown", "unknown"]
    assert pool.raw_texts() == RAW
    assert verify_recording(new.path).ok
    (dataset,) = result.datasets
    assert [(llm.split, llm.without_reply) for llm in dataset.llms] == [(4, 2), (0, 0)]
    assert (
        "the thoughts of org/thinker were split off 4 of 5 texts; 2 CoTs end in their thoughts"
        in result.notes[0]
    )

    def is_linked(part, llm):
        prefix = f"{part}/sums/{llm}"
        (path,) = [name for name in new.manifest.files if name.startswith(prefix)]
        return (old / path).samefile(new.path / path)

    assert is_linked("texts", "org--plain")
    assert is_linked("requests", "org--thinker")
    assert not (new.path / "texts").samefile(old / "texts")
    assert not is_linked("texts", "org--thinker")
    again = extract(new.path, tmp_path / "again")
    assert (again.recording_hash, again.datasets[0].llms[0].split) == (new.hash, 0)


def test_stored_answers_are_kept_with_their_texts(tmp_path):
    extract(written(tmp_path / "old", texts=RAW), tmp_path / "new", source="stored")
    pool = one_pool(open_recording(tmp_path / "new"))
    assert (list(pool.texts), list(pool.answers)) == (RAW, ["7"] * 5)


NOW = "2026-01-01T00:00:00Z"


def messages(question):
    return [Message("user", question.text)]


WORK = RecordingTask(
    [QUESTION], "sums", LLM, messages, "sums@1", Decoding(), samples=5, answer_kind="number"
)


def thinking(**fields):
    usual = {"output_tokens": 10, "prompt_tokens": 20} | fields
    reasons = ["stop", "stop", "unknown", "stop", "stop"]
    return FakeBackend(answer=lambda _, sample: Completion(RAW[sample], reasons[sample], **usual))


def recorded(out, backend=None, work=WORK, **options):
    options = {"prices": "none", "now": lambda: NOW} | options
    return open_recording(record_dataset(work, backend or thinking(), out, **options))


def test_recording_splits_when_it_seals_and_the_journal_keeps_the_raw_reply(tmp_path):
    recording = recorded(tmp_path / "r", keep_journal=True)
    assert_split(recording)
    assert "Texts that held thoughts, which were split off: 4." in recording.manifest.raw["notes"]
    assert (
        "CoTs that end in their thoughts, without a reply, which is no answer: 2."
        in recording.manifest.raw["notes"]
    )
    folder = journal_folder(tmp_path / "r")
    kept = {cot["sample"]: cot["text"] for cot in cots(folder, WORK.identity())}
    assert [kept[sample] for sample in range(5)] == RAW
    with Journal.open(folder, WORK.identity()) as journal:
        plan = WORK.plan()
        dataset = WORK.dataset_info(plan.requests)
        source = JournaledLLM(journal, dataset, WORK.questions, plan.requests, WORK.llm_info())
        again = seal([source], tmp_path / "again", operation={"name": "record"})
    assert open_recording(again).hash == recording.hash


def test_sealing_knows_a_template_that_opens_thoughts_by_any_cot(tmp_path):
    def answer(_, sample):
        text, reason = CUT[sample]
        return Completion(text, reason, output_tokens=9, prompt_tokens=3)

    work = replace(WORK, samples=3)
    out = record_dataset(work, FakeBackend(answer=answer), tmp_path / "sealed")
    pool = one_pool(open_recording(out))
    assert list(pool.answers) == [None, "5", "4"]
    assert pool.raw_texts() == [text for text, _ in CUT]


def test_a_recording_that_others_begin_with_gives_back_its_raw_replies(tmp_path):
    first = recorded(tmp_path / "first", thinking(tokens_split=True), replace(WORK, samples=3))
    backend = thinking()
    whole = recorded(tmp_path / "whole", backend, start=first.path)
    assert_split(whole)
    assert backend.asked == {("sums/0", 3): 1, ("sums/0", 4): 1}
    # counts that were split stay so
    assert whole.manifest.pairs["sums", LLM]["counter"] == SPLIT_USAGE


def test_the_replay_sees_replies(tmp_path):
    recording = recorded(tmp_path / "r")
    _, (llm,) = load("sums", [LLM], recording=recording, prices="none")
    cots = llm("sums/0", n=5).cots
    assert [cot.raw_text for cot in cots] == [REPLIES[cot.sample] for cot in cots]
    assert [cot.reasoning for cot in cots] == [REASONING[cot.sample] for cot in cots]


def test_a_live_twin_answers_as_its_recording_does():
    with live(thinking(), LLM, answer_kind="number", prices="none") as llm:
        cots = llm.ask("Two and two?").sample(5).cots
    assert [cot.raw_text for cot in cots] == REPLIES
    assert [cot.answer for cot in cots] == ANSWERS
    assert [cot.reasoning for cot in cots] == REASONING
    assert [cot.finish_reason for cot in cots] == REASONS


CARD = """---
name: org/thinker
title: Thinker
family: Thinker
provider: here
reasoning: true
cots_to_record: 3
temperature: null
max_tokens: {max_tokens}
source: made up
{thoughts}
---
"""


def card(folder, thoughts="", max_tokens="null"):
    (folder / "llms").mkdir(parents=True, exist_ok=True)
    path = folder / "llms" / "org--thinker.md"
    path.write_text(CARD.format(thoughts=thoughts, max_tokens=max_tokens))
    return path


def test_a_card_brings_marks_of_its_own(tmp_path, monkeypatch):
    card(tmp_path / "cards", 'thoughts: ["[[", "]]"]')
    monkeypatch.setenv("FEVAL_CARDS", str(tmp_path / "cards"))
    assert llm_card("org/thinker@t=1").thoughts == ("[[", "]]")
    pool = one_pool(imported(tmp_path, [{"text": "[[The answer is 7.]] The answer is 4."}]))
    assert (pool.texts, pool.answers) == (["The answer is 4."], ["4"])


def test_an_llm_that_reasons_has_room_to_think(tmp_path, monkeypatch):
    assert default_decoding("org/unheard-of").max_tokens == 2048
    assert default_decoding("org/unheard-of", reasoning=True).max_tokens == 32_768
    assert default_decoding("o3-mini").max_tokens == 2048  # its card is published, and frozen
    monkeypatch.setenv("FEVAL_CARDS", str(tmp_path))
    card(tmp_path)
    assert default_decoding("org/thinker@t=1").max_tokens == 32_768
    card(tmp_path, max_tokens="4096")
    assert default_decoding("org/thinker").max_tokens == 4096


def cut(number, of, text="<think>No,", reason="length"):
    return [Completion(text, reason)] * number + [Completion("The answer is 4.", "stop")] * (
        of - number
    )


@pytest.mark.parametrize(
    ("completions", "warning"),
    [
        (cut(1, 20), None),  # 5 % are not more than 5 %
        (
            cut(2, 20),
            (
                "2 of the first 20 CoTs end at the limit of 2,048 output tokens, 2 of them inside a"
                " thought"
            ),
        ),
        (cut(2, 20, reason="unknown"), "2 of the first 20 CoTs end at the limit"),
        (
            cut(2, 20, "The answer", "length"),
            "2 of the first 20 CoTs end at the limit of 2,048 output tokens, so that",
        ),
        (cut(1, 20) + cut(5, 80), "6 of the first 100 CoTs end at the limit"),
        (cut(1, 20) + cut(4, 80), None),
        (cut(2, 19), None),  # too early to say
    ],
)
def test_too_many_replies_at_the_limit_are_said_early(completions, warning):
    watch = LimitWatch(Decoding(max_tokens=2048), None, 500)
    said = [sentence for sentence in map(watch.see, completions) if sentence]
    assert len(said) == (warning is not None)
    if warning is not None:
        assert said[0].startswith(warning)


def test_record_warns_and_the_recording_says_so(tmp_path):
    warnings = []
    backend = FakeBackend(
        answer=lambda *_: Completion("<think>No,", "length", output_tokens=9, prompt_tokens=2)
    )
    recording = recorded(
        tmp_path / "r", backend, progress=lambda state: warnings.append(state.warning or "")
    )
    expected = (
        "5 of the first 5 CoTs end at the limit of 2,048 output tokens, 5 of them inside a thought,"
        " so that their answers are not known. Stop, and record into another folder with a higher"
        " limit, such as --max-tokens 32768."
    )
    assert warnings[-1] == expected
    assert expected in recording.manifest.raw["notes"]


def read(messages, usage):
    choices = [
        {"index": i, "finish_reason": "stop", "message": message}
        for i, message in enumerate(messages)
    ]
    return replies.read({"choices": choices, "usage": usage}, len(messages), None, str)


def test_hidden_reasoning_is_not_split_by_visible_text():
    usage = {"completion_tokens": 110, "completion_tokens_details": {"reasoning_tokens": 100}}
    reading = read([{"content": "a" * 9}, {"content": "a"}], usage)
    assert [completion.reasoning_tokens for completion in reading.completions] == [50, 50]
    assert [completion.output_tokens for completion in reading.completions] == [59, 51]
    assert all(completion.tokens_split for completion in reading.completions)
    assert "split evenly" in reading.notes[0]
    assert "samples_per_request = 1" in reading.notes[0]
    shown = read(
        [{"content": "a", "reasoning": "r" * 3}, {"content": "a", "reasoning": "r"}], usage
    )
    assert [completion.reasoning_tokens for completion in shown.completions] == [75, 25]
    assert "evenly" not in shown.notes[0]


@pytest.mark.parametrize(("message", "reasoning"), FORMS["thoughts"])
def test_every_field_that_holds_thoughts_is_read(message, reasoning):
    (completion,) = read([{"content": "a"} | message], {"completion_tokens": 5}).completions
    assert completion.reasoning == reasoning
    assert "r" not in completion.text


@pytest.mark.parametrize(
    ("usage", "output", "reasoning"),
    [case for cases in FORMS["thoughts beside"].values() for case in cases],
)
def test_thoughts_beside_the_completion_are_output(usage, output, reasoning):
    (completion,) = read(
        [{"content": "a"}], {"prompt_tokens": 3, "completion_tokens": 10} | usage
    ).completions
    assert (completion.output_tokens, completion.reasoning_tokens) == (output, reasoning)


def test_split_counts_are_called_what_they_are(tmp_path):
    together = recorded(tmp_path / "together", thinking(tokens_split=True))
    assert (
        together.manifest.pairs["sums", LLM]["counter"] == SPLIT_USAGE == "usage, split by length"
    )
    assert "usage, split by length" in info(together.path)
    _, (llm,) = load("sums", [LLM], recording=together, prices="none")
    assert llm.counter == SPLIT_USAGE
    apart = recorded(tmp_path / "apart", limits=Limits(samples_per_request=1))
    assert apart.manifest.pairs["sums", LLM]["counter"] == USAGE


def test_a_local_model_s_special_tokens_are_left_out_but_for_those_of_thoughts():
    words = {
        1: "<s>",
        2: "[THINK]",
        3: "It is 7.",
        4: "[/THINK]",
        5: "The answer is 4.",
        6: "<|end|>",
    }
    assert mark_tokens(words.values()) == {"[THINK]", "[/THINK]"}
    assert mark_tokens(["<|channel|>", "<|end|>"]) == {"<|channel|>", "<|end|>"}

    def decode(tokens, *, skip_special_tokens):
        return "".join(
            words[token] for token in tokens if not (skip_special_tokens and token in {1, 2, 4, 6})
        )

    marks = {number: word for number, word in words.items() if word in mark_tokens(words.values())}
    text = decoded([1, 2, 3, 4, 5, 6], marks, decode)
    assert text == "[THINK]It is 7.[/THINK]The answer is 4."
    assert split(text).reply == "The answer is 4."
    assert decoded([1, 5, 6], marks, decode) == "The answer is 4."
    assert decoded([], marks, decode) == ""
