"""Recorded turns: every reply is replied to by a protocol, through the journal, the sealed
recording and every resumption.
"""

import json
from pathlib import Path

import pytest
from command_line import feval
from killed import run
from places import read_data
from recording_doubles import FakeBackend, completions
from watched import Watched, recorded, tiny_task

from feval.errors import CardError, FevalError, StorageError, UsageError
from feval.recording import open_recording, verify_recording
from recorders import tiny
from recorders.asking.pace import Limits
from recorders.asking.trees import Protocol, child_seed
from recorders.backends.local import Tiny
from recorders.errors import Fatal, JournalError, MissingError, RefusalError
from recorders.request import Completion, Decoding, Message, Request
from recorders.work.prompts import read_protocol

DATASET, MODEL, LLM = "tiny_sums", "feval/tiny-42k", "feval/tiny-42k@revise"
CHAINS, TURNS = 3, 3
PROTOCOL = (
    "---\nname: revise\ntitle: Look again\n---\n\nYou said {answer}. Look again at {what}:"
    " {question}\n"
)


def written(folder, text=PROTOCOL):
    path = folder / "revise.md"
    path.write_text(text)
    return path


def task(protocol, first=2, **changes):
    return tiny_task(first, **{"samples": CHAINS, "turns": TURNS, "protocol": protocol} | changes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("turns")


@pytest.fixture(scope="module")
def protocol(folder):
    return written(folder)


@pytest.fixture(scope="module")
def asked():
    return Watched()


@pytest.fixture(scope="module")
def turns(folder, protocol, asked):
    return recorded(folder / "r", task(protocol), asked)


def test_each_turn_replies_to_the_whole_conversation_before_it(turns, asked):
    assert verify_recording(turns.path).ok
    questions = {question.id: question.text for question in turns.questions(DATASET)}
    expected = set()
    for pool in turns.pools(DATASET, LLM):
        question = questions[pool.question_id]
        assert pool.parents == [None] * CHAINS + [*range(CHAINS * (TURNS - 1))]
        assert pool.ends == [True] * CHAINS * TURNS
        conversations = [()] * CHAINS
        for place, parent in enumerate(pool.parents):
            if parent is not None:
                said = (
                    f"You said {pool.raw_answers[parent] or 'no answer'}. Look again at {{what}}:"
                    f" {question}"
                )
                assert json.loads((pool.messages or [])[place] or "") == [
                    {"role": "user", "content": said}
                ]
                reply = Message("assistant", pool.texts[parent] or "")
                conversations.append((*conversations[parent], reply, Message("user", said)))
            path = (place % CHAINS,) + (0,) * (place // CHAINS)
            expected.add(
                (pool.question_id, conversations[place], None, child_seed(path[:-1], path[-1]))
            )
    assert set(asked.asked) == expected
    assert len(asked.asked) == len(expected)


def test_a_tiny_model_keeps_the_first_half_of_its_last_reply_and_writes_the_rest_anew():
    question = "Tom has 49 apples. Tom sells 22. How many apples does Tom have now?"
    said = ["Start with 1.", "?", "Start with 49. 49-22=26. No.", "Sure?"]
    conversation = tuple(map(Message, ["assistant", "user"] * 2, said))
    asked = (Message("user", question),), MODEL, Decoding(1.0, max_tokens=60), None, conversation
    turns = completions(Tiny(), Request(DATASET, "q", *asked), [0, 1])

    def size(text):
        return len(tiny.tokenizer().encode(f" {text}"))

    kept = "Start with 49."
    for number, turn in enumerate(turns):
        decoding = tiny.TinyDecoding(max_tokens=60 - size(kept))
        [rest] = tiny.sample(tiny.load_model(MODEL), question, [number], decoding, None, kept)
        assert turn.text == f"{kept}{rest.text}"
        assert turn.output_tokens == size(kept) + rest.output_tokens
        # Each message has two marks around it, each reply one behind it.
        assert turn.prompt_tokens == sum(map(size, [question, *said])) + 3 * 2 + 2


def test_another_protocol_is_refused(turns, protocol, tmp_path):
    backend = Watched()
    assert recorded(turns.path, task(protocol), backend).hash == turns.hash
    other = written(tmp_path, PROTOCOL.replace("Look again", "Think"))
    with pytest.raises(StorageError, match="is another recording: its protocol messages is"):
        recorded(turns.path, task(other), backend)
    with pytest.raises(UsageError, match="Chains of turns are recorded whole and anew"):
        recorded(tmp_path / "r", task(protocol), backend, start=turns.path)
    with pytest.raises(Fatal):
        recorded(tmp_path / "r", task(protocol), Watched(5), limits=Limits(1))
    for work in (task(other), task(protocol, turns=2)):
        with pytest.raises(JournalError, match=r"protocol (messages|turns) is"):
            recorded(tmp_path / "r", work, backend)
    with pytest.raises(MissingError, match="of 18 turns, and the mode 'none' asks for nothing"):
        recorded(tmp_path / "r", task(protocol), backend, mode="none")
    assert backend.asked == []


def test_the_number_of_turns_and_their_price_are_printed_first(protocol, tmp_path):
    def run(*more):
        options = (
            f"--dataset {DATASET} --llm {MODEL} --first 2 --max-tokens 50 --samples 2"
            f" --set turns=3 --protocol {protocol}"
        )
        return feval(f"record {options} --out {tmp_path}/r", *more)

    account = json.loads(run("--dry-run", "--json").stdout)
    assert (account["cots"], account["calls"], account["unit"]) == (
        2 * 2 * 3,
        2 * (1 + 2 + 2),
        "turn",
    )
    assert account["output_tokens"] == 2 * 2 * 3 * 50
    # Two chains of two questions send a reply of at most 50 tokens once, and then both.
    again = account["prompt_tokens"] - account["uncached_prompt_tokens"]
    assert again > 2 * 2 * (50 + 100)
    assert account["usd"] > account["usd_cached"] > 0
    result = run()
    assert "To come: 12 turns in 10 calls" in result.stderr
    assert "where the server caches the conversation" in result.stderr
    assert "Nothing was asked" not in result.stderr


def test_a_chain_ends_where_there_is_nothing_to_reply_to(protocol, tmp_path):
    def answer(request, _sample):
        number = int(request.question_id.split("/")[1])
        if number == 1 and request.conversation:
            raise RefusalError("too long")
        texts = {0: "<think>\n2 + 2</think>\n\nThe answer is 4.", 2: "", 3: "<think>\nNever closed"}
        return Completion(
            texts.get(number, "The answer is 4."), "stop", output_tokens=9, prompt_tokens=20
        )

    pools = list(
        recorded(tmp_path / "r", task(protocol, 4), FakeBackend(answer=answer)).pools(DATASET, LLM)
    )
    assert [len(pool.texts) for pool in pools] == [9, 6, 3, 3]
    # thoughts are no part of the conversation, nor of the text
    assert pools[0].texts == ["The answer is 4."] * 9
    assert pools[1].answers == ["4"] * 3 + [None] * 3
    assert pools[1].turn_prompt_tokens == [None] * 3 + [0] * 3


def test_tokens_of_turns_that_nobody_counted_are_counted_for_all(protocol, tmp_path):
    def answer(request, _sample):
        return Completion(
            "The answer is 4.",
            "stop",
            output_tokens=9,
            prompt_tokens=None if request.conversation else 20,
        )

    recording = recorded(tmp_path / "r", task(protocol), FakeBackend(answer=answer))
    assert recording.manifest.pairs[DATASET, LLM]["counter"] == "words"
    for pool in recording.pools(DATASET, LLM):
        assert all(
            tokens > (pool.prompt_tokens or 0)
            for tokens in (pool.turn_prompt_tokens or [])[CHAINS:]
        )  # type: ignore[operator]


def test_each_turn_may_have_a_message_of_its_own(tmp_path):
    own = (
        "---\nname: two\nno_answer: nothing\n---\n# Turn 2\nCriticise it.\n\n# Turn 3\nNow correct"
        " {answer}.\n"
    )
    work = task(written(tmp_path, own), turns=None)
    assert (work.llm_name, work.tree and work.tree.depth) == ("feval/tiny-42k@two", 3)
    assert work.identity()["protocol"] == {
        "name": "two", "turns": 3, "first": CHAINS, "messages": ["Criticise it.",
        "Now correct {answer}."],
        "no_answer": "nothing",
    }  # fmt: skip


def test_a_protocol_may_be_text_alone(tmp_path):
    path = written(tmp_path, "Look again.\n")
    assert read_protocol(path) == Protocol(path.stem, ("Look again.",))
    with pytest.raises(CardError, match="has no text for the turns"):
        read_protocol(written(tmp_path, "\n"))
    with pytest.raises(
        CardError, match=r"'look again' in the field 'name' .*a file of text only has its own"
    ):
        read_protocol(path.rename(tmp_path / "look again.txt"))


@pytest.mark.parametrize(
    ("text", "fields", "sentence"),
    [
        *read_data("cards.json")["protocols"],
        (PROTOCOL, {"turns": 1}, "2 turns or more; 3 of 1 turns were asked for"),
        (PROTOCOL, {"samples": 30_000}, "are more than the 65,534 turns"),
        (PROTOCOL, {"turn_template": "{prompt}"}, "turn_template holds"),
        (PROTOCOL, {"tree": True}, "A tree is of steps, and `protocol` records turns"),
        (PROTOCOL, {"probe_every": 5}, "leave one of `protocol` and probe_every out"),
        (PROTOCOL, {"protocol": None}, "turns is for a protocol of turns; add protocol='FILE'"),
        (PROTOCOL, {"protocol": Path("no-such.md")}, "no-such.md"),
    ],
)
def test_wrong_protocols_are_refused_before_anything_is_asked(text, fields, sentence, tmp_path):
    with pytest.raises(FevalError, match=sentence):
        task(**{"protocol": written(tmp_path, text)} | fields)


KILLED = """
from pathlib import Path
from killed import logging, through_kills
from test_record_turns import Limits, Tiny, recorded, task

work, logged = task(Path(sys.argv[3])), logging(Tiny, sys.argv[2])
limits = Limits(4, samples_per_request=1)
through_kills(lambda: recorded(Path(sys.argv[1]), work, logged(), limits=limits), 15)
"""


@pytest.mark.slow
def test_kills_between_turns_lose_nothing_and_repeat_little(turns, protocol, tmp_path):
    run(KILLED, tmp_path / "r", tmp_path / "asked", protocol, of=__file__)
    assert open_recording(tmp_path / "r").hash == turns.hash
    count = 2 * CHAINS * TURNS
    assert count <= len((tmp_path / "asked").read_text().split()) <= count + 15 * 4
