"""Runs: each walks through the pools on its own, sees the draws of its replicate, and pays for what
it takes.
"""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import orjson
import pytest
from hypothesis import given, settings, strategies as st
from serving_doubles import (
    asked_by_text,
    body,
    chat,
    error,
    get,
    opened,
    post,
    reply_to,
    rows,
    samples_of,
    simple,
    texts_of,
    write,
)
from small import write_toy

from feval import load
from feval.appendlog import line
from feval.cards.billing import BILLINGS
from feval.errors import (
    ConflictError,
    NotRecordedError,
    ReplayWarning,
    SourceError,
    StorageError,
    UsageError,
)
from feval.recording import LLMInfo
from feval.serving import Application, Call, runs
from feval.serving.ledger import read_ledger
from feval.serving.runs import public_run, run_name, run_of_key
from feval.serving.wire.calls import RequestError

QUESTIONS = [f"What is the answer to question number {i}, please?" for i in range(5)]


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    return simple(tmp_path_factory.mktemp("runs") / "r", QUESTIONS, size=7)


@pytest.fixture
def app(recording):
    with opened(recording) as application:
        yield application


@pytest.mark.parametrize(
    ("text", "label", "replicate"),
    [
        ("mine", "mine", 0), ("mine@0", "mine", 0), ("mine@3", "mine@3", 3), ("mine@007", "mine@7",
        7),
        ("mine@recorded", "mine@recorded", None), ("a" * 64, "a" * 64, 0), ("A.b_c-1@1000000",
        "A.b_c-1@1000000", 1_000_000),
    ],
)  # fmt: skip
def test_a_name_says_the_replicate(text, label, replicate):
    assert (run_name(text).label, run_name(text).replicate) == (label, replicate)


def test_a_server_of_recorded_order_means_it_where_nothing_is_said():
    assert run_name("mine", "recorded").replicate is None
    assert run_name("mine@recorded", "recorded").label == "mine"
    assert (run_name("mine@0", "recorded").label, run_name("mine@0", "recorded").replicate) == (
        "mine@0",
        0,
    )


NO_NAMES = ["", "..", "-x", ".x", "a/b", "a b", "a\n", "é", "a" * 65, "\x00"]


@pytest.mark.parametrize(
    "text", [*NO_NAMES, "a@", "a@b", "a@-1", "a@1000001", "a@99999999", "a@1@2", "a@٣"]
)
def test_no_run_is_called_so(text):
    with pytest.raises(RequestError) as caught:
        run_name(text)
    assert caught.value.code == "bad_run"


@pytest.mark.parametrize(
    "key",
    [
        "sk-123",
        "sk-proj-abcdef",
        "hf_x",
        "gsk_yy",
        "AIzaSyX",
        "a" * 32,
        "eyJhbGciOi",
        "with space",
        "é",
    ],
)
def test_a_key_that_may_be_a_secret_is_not_kept(key):
    result = run_of_key(key)
    assert result.label.startswith("key-")
    assert len(result.label) == 12
    assert key not in result.label
    assert result.replicate == 0
    assert result == run_of_key(key)


@pytest.mark.parametrize(
    ("key", "label"),
    [
        ("EMPTY", "EMPTY"),
        ("none", "none"),
        ("dummy", "dummy"),
        ("esc@2", "esc@2"),
        ("-", "default"),
        ("", "default"),
    ],
)
def test_any_other_key_is_a_name(key, label):
    assert run_of_key(key).label == label


@pytest.mark.parametrize("key", ["sk-" + "proj" * 5, "gh" + "p_" + "a1" * 12])
def test_a_secret_is_no_name_in_path_or_header(key, app):
    for call in (
        Call("GET", f"/run/{key}/v1/models", "", {}, b""),
        Call("GET", "/v1/models", "", {"x-feval-run": key}, b""),
    ):
        reply = app.respond(call)
        assert reply.status == 400
        assert key.encode() not in reply.body
    assert public_run("sk-short").label == "sk-short"


def test_path_header_and_key_name_the_run_in_this_order(app):
    key = {"authorization": "Bearer by-key"}
    header = key | {"x-feval-run": "by-header"}
    for name, fields in (
        ("default", {}),
        ("by-key", {"headers": key}),
        ("by-x", {"headers": {"x-api-key": "by-x"}}),
        ("by-header", {"headers": header}),
        ("by-path@2", {"headers": header, "path": "/run/by-path@2"}),
    ):
        assert reply_to(app, QUESTIONS[0], **fields).headers["x-feval-run"] == name
    for bad in ("/run/..", "/run/", "/run/a b", "/run/a@x"):
        assert reply_to(app, QUESTIONS[0], path=bad).status == 400
    assert error(reply_to(app, QUESTIONS[0], run="../etc"))["code"] == "bad_run"
    assert reply_to(app, QUESTIONS[0], path="/run/a/b").status == 404


@settings(max_examples=40)
@given(
    st.integers(0, 3),
    st.sampled_from([0, 1, 5, 10**6, None]),
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4)), max_size=12),
)
def test_draws_dollars_and_tokens_are_those_of_a_metered_llm(recording, seed, replicate, steps):
    for billing in BILLINGS:
        _, [llm] = load("toy", None, recording, seed=seed, billing=billing)
        metered = {}
        with opened(recording, seed=seed, billing=billing) as app:
            run = "mine@recorded" if replicate is None else f"mine@{replicate}"
            dollars = 0.0
            for row, n in steps:
                mine = metered.setdefault(row, llm.ask(row, replicate))
                reply = reply_to(app, QUESTIONS[row], n=n, run=run)
                if n > mine.remaining:
                    assert error(reply)["code"] == "pool_exhausted"
                    continue
                drawn = mine.sample(n)
                assert samples_of(reply) == list(drawn.samples)
                assert texts_of(reply) == [cot.raw_text for cot in drawn.cots]
                assert body(reply)["usage"]["completion_tokens"] == drawn.tokens
                assert reply.headers["x-feval-remaining"] == str(mine.remaining)
                dollars += float(reply.headers["x-feval-cost-usd"])
            if any(mine.cots for mine in metered.values()):
                result = app.ledger(run)
                assert result["cots"] == sum(mine.cots for mine in metered.values())
                assert result["requests"] == sum(mine.rounds for mine in metered.values())
                assert result["prompt_tokens"] + result["output_tokens"] == sum(
                    mine.tokens_billed for mine in metered.values()
                )
                assert result["usd"] == pytest.approx(
                    sum(mine.dollar_cost for mine in metered.values()), rel=1e-12
                )
                assert result["usd"] == pytest.approx(dollars, rel=1e-12)


def test_the_seed_of_a_request_does_not_choose_the_cot(app):
    drawn = [samples_of(reply_to(app, QUESTIONS[2], seed=1234))[0] for _ in range(7)]
    assert sorted(drawn) == list(range(7))


def test_a_used_up_pool_is_an_error_with_both_numbers(app):
    assert reply_to(app, QUESTIONS[0], n=5).status == 200
    for n in (3, 10**9):
        reply = reply_to(app, QUESTIONS[0], n=n)
        result = error(reply)
        assert (reply.status, result["code"], result["param"]) == (400, "pool_exhausted", "n")
        assert "7 recorded CoTs" in result["message"]
        assert "2 are left" in result["message"]
        assert f"{n:,} were asked for" in result["message"]
    assert reply_to(app, QUESTIONS[0], n=2).headers["x-feval-remaining"] == "0"


def test_a_pool_that_starts_over_marks_what_was_given_before(recording):
    with opened(recording, recycle=True) as app:
        once = samples_of(reply_to(app, QUESTIONS[0], n=5))
        reply = reply_to(app, QUESTIONS[0], n=4)
        assert reply.headers["x-feval-recycled"] == "2"
        assert [choice.get("feval") for choice in body(reply)["choices"]] == [None] * 2 + [
            {"recycled": True}
        ] * 2
        assert samples_of(reply)[2:] == once[:2]
        assert "x-feval-recycled" not in reply_to(app, QUESTIONS[1], n=7).headers
        many = reply_to(app, QUESTIONS[2], n=20)
        assert Counter(samples_of(many)) == Counter([*range(7)] * 2 + samples_of(many)[:6])
        assert many.headers["x-feval-recycled"] == "13"
        assert app.ledger("default")["recycled"] == 15
        assert error(reply_to(app, QUESTIONS[0], n=10**9))["code"] == "pool_exhausted"


def test_a_chosen_cot_does_not_move_the_place_and_is_paid_for(app):
    reply = reply_to(app, QUESTIONS[3], feval={"sample": 4})
    assert samples_of(reply) == [4]
    assert reply.headers["x-feval-remaining"] == "7"
    assert samples_of(reply_to(app, QUESTIONS[3], headers={"x-feval-sample": "4"})) == [4]
    assert sorted(samples_of(reply_to(app, QUESTIONS[3], n=7))) == list(range(7))
    assert app.ledger("default")["cots"] == 9
    result = error(reply_to(app, QUESTIONS[3], feval={"sample": 7}))
    assert "7 recorded CoTs" in result["message"]
    assert "sample 7" in result["message"]


@pytest.mark.parametrize(
    ("run", "other"),
    [("again", "again-2"), ("again-2@1", "again-3@1"), ("a" * 64, "a" * 60 + "-2")],
)
def test_a_used_up_run_is_told_how_to_start_again(app, run, other):
    """A new name sees the same draws; `again@1` would be another replicate."""
    headers = {"x-feval-run": run}
    first = samples_of(reply_to(app, QUESTIONS[0], n=7, headers=headers))
    message = error(reply_to(app, QUESTIONS[0], n=7, headers=headers))["message"]
    assert "continues with the next CoTs" in message
    assert f"a new name, such as '{other}'" in message
    assert f"POST /run/{run}/feval/reset" in message
    assert "again@1'" not in message
    assert samples_of(reply_to(app, QUESTIONS[0], n=7, run=other)) == first
    reply = app.respond(Call("POST", f"/run/{run}/feval/reset", "", {}, b""))
    assert body(reply) == {"run": run, "reset": True}
    assert samples_of(reply_to(app, QUESTIONS[0], n=7, headers=headers)) == first


def test_a_reset_is_kept_in_the_ledger(recording, tmp_path):
    ledger = tmp_path / "ledger.jsonl"
    with opened(recording, ledger=ledger) as app:
        assert app.respond(Call("POST", "/run/nobody/feval/reset", "", {}, b"")).status == 404
        ask_some(app)
        app.reset("default")
        first = samples_of(reply_to(app, QUESTIONS[1], n=2))
        result = app.ledger()
    with opened(recording, ledger=ledger, resume=True) as app:
        assert {run["run"]: run["cots"] for run in app.ledger()["runs"]} == {
            "other@3": 1,
            "default": 2,
        }
        assert app.ledger()["runs"] == result["runs"]
        rest = samples_of(reply_to(app, QUESTIONS[1], n=5))
    with opened(recording) as app:
        assert samples_of(reply_to(app, QUESTIONS[1], n=7)) == first + rest


PASSES = [
    # questions and n, in order; in which pass each request is
    ("0 0 0 1 1 2", [1, 1, 1, 1, 1, 1]),  # one question after the other, in rounds
    ("0 0 1 0", [1, 1, 1, 2]),
    ("0 1 2 0 1 2", [1, 1, 1, 2, 2, 2]),  # the whole program again, down to its last question
    ("0 0 1 1 0 0 1 1", [1, 1, 1, 1, 2, 2, 2, 2]),
    ("0 1 0 2 1 3", [1, 1, 2, 1, 2, 1]),  # what is asked for the first time is in its first pass
    ("0 1 0 1 0 1", [1, 1, 2, 2, 3, 3]),
    ("0,1,2 0,1,2 0,2", [1, 1, 1]),  # the prompts of one request are asked together
    ("0,1 2,3 0,1", [1, 1, 2]),
]


@pytest.mark.parametrize(("asked", "passes"), PASSES)
def test_a_question_that_is_asked_again_in_a_later_pass_is_marked(
    recording, tmp_path, caplog, asked, passes
):
    ledger = tmp_path / "ledger.jsonl"
    again = {
        question
        for group, number in zip(asked.split(), passes, strict=True)
        for question in group.split(",")
        if number > 1
    }
    with opened(recording, ledger=ledger) as app:
        for group, number in zip(asked.split(), passes, strict=True):
            prompts = [QUESTIONS[int(question)] for question in group.split(",")]
            raw = orjson.dumps({"model": "gpt-3.5-turbo", "prompt": prompts})
            reply = app.respond(post(raw, of="completions", path="/run/mine"))
            shown = reply.headers.get("x-feval-pass", ",".join("1" * len(prompts)))
            assert set(shown.split(",")) == {str(number)}
        result = app.ledger("mine", detail=True)
    assert result["asked_again"] == result["llms"]["gpt-3.5-turbo"]["asked_again"] == len(again)
    assert {entry["question"] for entry in result["asked"] if entry["passes"] > 1} == {
        f"q{question}" for question in again
    }
    assert sum(entry.get("pass", 1) > 1 for entry in read_ledger(ledger)[1]) == sum(
        len(group.split(","))
        for group, number in zip(asked.split(), passes, strict=True)
        if number > 1
    )
    with opened(recording, ledger=ledger, resume=True) as app:
        assert app.ledger("mine", detail=True) == result
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == bool(again)  # once
    assert not told or "such as 'mine-2'" in told[0]


def test_a_program_that_asks_in_rounds_and_is_started_again_begins_a_pass(app):
    """In its second round no question is new, so that only the end of its connections tells the
    next start from a third round.
    """

    def rounds(asked):
        ended = []
        senders = [(lambda: bool(ended), True), (lambda: bool(ended), True)]
        calls = [
            replace(chat(QUESTIONS[q]), sender=senders[place % 2]) for place, q in enumerate(asked)
        ]
        marks = [app.respond(call).headers.get("x-feval-pass") for call in calls]
        ended.append(True)
        return marks

    assert rounds([0, 1, 2, 0, 1, 2]) == [None] * 6
    assert rounds([2, 0, 1, 2, 0, 1]) == [None] + ["2"] * 5  # what was asked last may be asked on
    assert rounds([0, 1, 2]) == ["3"] * 3
    assert app.ledger("default")["asked_again"] == 3


def test_another_llm_or_run_is_no_later_pass(tmp_path):
    """A cascade asks another LLM, question by question, and may come back to the first; or in a
    second sweep.
    """
    questions = asked_by_text(QUESTIONS[:3])
    pools = [
        (LLMInfo(name), [rows(question, 7) for question in questions])
        for name in ("weak", "strong")
    ]
    with opened(write(tmp_path / "r", pools, questions)) as app:

        def ask(llm, question, run="mine"):
            return reply_to(app, QUESTIONS[question], model=llm, path=f"/run/{run}").headers.get(
                "x-feval-pass"
            )

        for question in range(3):
            assert [ask(llm, question) for llm in ("weak", "strong", "weak", "strong")] == [
                None
            ] * 4
        assert ask("weak", 0, "yours") is None
        for llm in ("weak", "strong"):
            assert [ask(llm, question, "sweeps") for question in range(3)] == [None] * 3
        assert [ask("weak", question, "sweeps") for question in range(3)] == ["2"] * 3


def test_each_run_is_told_once_of_each_thing_that_replies_do_not_heed(app):
    said = []
    system = {"role": "system", "content": "Be brief."}

    def ask(run, **fields):
        messages = (
            [system, {"role": "user", "content": QUESTIONS[0]}]
            if fields.pop("system", False)
            else QUESTIONS[0]
        )
        call = chat(messages, run=run, **fields)
        assert app.respond(replace(call, warn=said.append)).status == 200

    ask("mine", temperature=0.7, max_tokens=64, seed=3)  # as recorded
    assert said == []
    for _ in range(2):
        ask("mine", temperature=0)
    [sentence] = said
    assert sentence.startswith(
        "The run 'mine' asks for temperature 0, but gpt-3.5-turbo was recorded with 0.7. "
    )
    ask("mine", temperature=1, max_tokens=160)
    ask("mine", max_completion_tokens=80)
    ask("mine", system=True)
    ask("yours", system=True)
    kinds = ["temperature 0", "max_tokens 160", *["a system prompt of its own"] * 2]
    assert len(said) == len(kinds)
    assert all(kind in sentence for kind, sentence in zip(kinds, said, strict=True))
    assert said[-1].startswith("The run 'yours'")


def test_nothing_is_drawn_where_a_warning_is_an_error(app):
    def fail(sentence):
        raise ReplayWarning(sentence)

    with pytest.raises(ReplayWarning, match="temperature"):
        app.respond(replace(chat(QUESTIONS[0], temperature=0), warn=fail))
    assert app.ledger()["runs"] == []


def test_every_cot_is_handed_out_once_per_run_under_64_threads(tmp_path):
    questions = [f"How many are there of the kind {i}, all in all?" for i in range(8)]
    path = simple(tmp_path / "r", questions, size=96)
    with opened(path, ledger=tmp_path / "ledger.jsonl") as app:
        seen = []
        statuses = Counter()
        lock = threading.Lock()
        barrier = threading.Barrier(64)

        def client(number):
            barrier.wait()
            mine = []
            # 64 x 30 = 1920 requests of 1 or 2 CoTs: more than 2 runs x 8 x 96 = 1536
            for step in range(30):
                run = f"run{number % 2}"
                question = (number // 2 + step) % 8
                reply = reply_to(app, questions[question], n=1 + step % 2, run=run)
                if reply.status == 200:
                    mine += [
                        (run, reply.headers["x-feval-question"], sample)
                        for sample in samples_of(reply)
                    ]
                with lock:
                    statuses[reply.status] += 1
            with lock:
                seen.extend(mine)

        with ThreadPoolExecutor(64) as threads:
            list(threads.map(client, range(64)))
        assert set(statuses) == {200, 400}
        assert len(seen) == len(set(seen))
        result = app.ledger()["runs"]
        assert sum(run["cots"] for run in result) == len(seen)
        assert sum(run["requests"] for run in result) == statuses[200]
    _, entries = read_ledger(tmp_path / "ledger.jsonl")
    written = [(e["run"], e["question"], sample) for e in entries for sample in e["samples"]]
    assert sorted(written) == sorted(seen)


def test_a_request_of_several_prompts_takes_from_all_or_none(app):
    def ask(prompts, n):
        raw = orjson.dumps({"model": "gpt-3.5-turbo", "prompt": prompts, "n": n})
        return app.respond(post(raw, of="completions"))

    assert ask([QUESTIONS[0], QUESTIONS[1], QUESTIONS[0]], 4).status == 400  # 8 of 7
    assert ask([QUESTIONS[1], QUESTIONS[1]], 3).headers["x-feval-remaining"] == "4,1"
    reply = ask([QUESTIONS[0], QUESTIONS[2]], 7)
    samples = [
        sorted(map(int, part.split(","))) for part in reply.headers["x-feval-samples"].split(";")
    ]
    assert samples == [list(range(7))] * 2


def ask_some(app):
    return [
        samples_of(reply_to(app, QUESTIONS[0], n=2)),
        samples_of(reply_to(app, QUESTIONS[0], run="other@3")),
        samples_of(reply_to(app, QUESTIONS[1], n=3)),
        samples_of(reply_to(app, QUESTIONS[1], feval={"sample": 6})),
    ]


def test_a_server_goes_on_where_its_ledger_ends(recording, tmp_path):
    ledger = tmp_path / "ledger.jsonl"
    with opened(recording, ledger=ledger) as app:
        ask_some(app)
        result = app.ledger()
    with ledger.open("ab") as file:
        file.write(b'{"run":"default","data')
    with opened(recording, ledger=ledger, resume=True) as app:
        assert app.ledger() == result
        rest = samples_of(reply_to(app, QUESTIONS[0], n=5))
    with opened(recording) as app:
        assert samples_of(reply_to(app, QUESTIONS[0], n=7))[2:] == rest
    assert [entry["n"] for entry in read_ledger(ledger)[1]] == [2, 1, 3, 1, 5]


def test_an_existing_ledger_is_neither_overwritten_nor_mixed_up(recording, tmp_path):
    ledger = tmp_path / "ledger.jsonl"
    with opened(recording, ledger=ledger) as app:
        ask_some(app)
        with pytest.raises(StorageError, match="Another process"):
            opened(recording, ledger=ledger, resume=True)
    before = ledger.read_bytes()
    with pytest.raises(StorageError, match="`resume`"):
        opened(recording, ledger=ledger)
    for options in (
        {"seed": 1},
        {"order": "recorded"},
        {"billing": "per_round"},
        {"prices": "none"},
    ):
        with pytest.raises(ConflictError, match="is the ledger of something else"):
            opened(recording, ledger=ledger, resume=True, **options)
    with pytest.raises(ConflictError, match="recordings"):
        opened(simple(tmp_path / "r2", QUESTIONS, size=8), ledger=ledger, resume=True)
    assert ledger.read_bytes() == before


def test_a_changed_ledger_is_refused(recording, tmp_path):
    ledger = tmp_path / "ledger.jsonl"
    with opened(recording, ledger=ledger) as app:
        [first, *_] = ask_some(app)
    lines = ledger.read_bytes().splitlines(keepends=True)
    entry = orjson.loads(lines[1])

    def resumed(changed):
        ledger.write_bytes(b"".join([lines[0], changed, *lines[2:]]))
        return opened(recording, ledger=ledger, resume=True)

    with pytest.raises(SourceError, match="Line 2"):
        resumed(b"nonsense\n")
    del entry["crc"]
    for changed, kind, words in (
        ({"n": 3}, SourceError, "Line 2 of .* is not a request"),
        ({"samples": first[::-1]}, ConflictError, "another order"),
        ({"samples": [99, 3]}, ConflictError, "does not have"),
        ({"question": "q99"}, ConflictError, "not served"),
    ):
        with pytest.raises(kind, match=words):
            resumed(line(entry | changed))
    ledger.write_bytes(b"hello\n")
    with pytest.raises(SourceError):
        opened(recording, ledger=ledger, resume=True)


def test_a_ledger_needs_a_place_outside_the_recording(recording, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot be opened"):
        opened(recording, ledger=tmp_path / "file" / "ledger.jsonl")
    with pytest.raises(UsageError):
        opened(recording, resume=True)
    before = sorted(recording.rglob("*"))
    with pytest.raises(StorageError, match="would lie inside the recording"):
        Application.open(recording, ledger=recording / "ledger.jsonl")
    assert sorted(recording.rglob("*")) == before


def test_the_ledger_tells_every_run_and_question(app):
    drawn = ask_some(app)
    everything = body(app.respond(get("/feval/ledger")))
    assert [run["run"] for run in everything["runs"]] == ["default", "other@3"]
    assert (everything["seed"], everything["order"], everything["billing"]) == (0, "seeded", "once")
    one = body(app.respond(get("/feval/ledger", "run=default&detail=1")))
    assert (one["questions"], one["requests"], one["cots"], one["prompt_tokens"]) == (2, 3, 6, 14)
    asked = [(entry["question"], entry["requests"], entry["samples"]) for entry in one["asked"]]
    assert asked == [("q0", 1, drawn[0]), ("q1", 2, drawn[2] + drawn[3])]
    assert body(app.respond(get("/run/other@3/feval/ledger")))["cots"] == 1
    missing = app.respond(get("/feval/ledger", "run=nobody"))
    assert missing.status == 404
    assert "default" in error(missing)["message"]
    assert app.respond(get("/feval/ledger", "runn=x")).status == 400
    with pytest.raises(NotRecordedError):
        app.ledger("nobody")


def test_what_has_no_price_says_why(tmp_path):
    with opened(simple(tmp_path / "a", QUESTIONS, llm="unheard-of"), llms="unheard-of") as app:
        reply = reply_to(app, QUESTIONS[0], model="unheard-of")
        assert "x-feval-cost-usd" not in reply.headers
        result = app.ledger("default")
        assert result["usd"] is None
        assert "'unheard-of'" in result["usd_missing"]
    with opened(simple(tmp_path / "b", QUESTIONS, prompt_tokens=None)) as app:
        reply = reply_to(app, QUESTIONS[0])
        assert reply.headers["x-feval-unknown"] == "prompt_tokens"
        assert body(reply)["usage"]["prompt_tokens"] == 0
        assert "prompt tokens" in app.ledger("default")["usd_missing"]


def test_the_ledger_is_its_owners_alone_also_if_it_was_not(recording, tmp_path):
    path = tmp_path / "ledger.jsonl"
    path.touch(0o644)
    for resume in (False, True):
        with opened(recording, ledger=path, resume=resume):
            assert path.stat().st_mode & 0o777 == 0o600
        path.chmod(0o644)


@pytest.mark.parametrize("keys", [1, 60, 1 << 15])
def test_of_a_wide_pool_few_questions_are_drawn_at_once(tmp_path, monkeypatch, keys):
    pools = [["a"] * (9 - row % 4) for row in range(40)]
    recording = write_toy(tmp_path / "wide", {"gpt-4o-mini": pools}, ["a"] * 40)
    _, [llm] = load("toy", recording=recording)
    whole = llm.orders([2], 9, np.arange(40))[0]
    usual, seen = llm.orders, []

    def counted(_, replicates, width, rows):
        seen.append(width * len(rows))
        return usual(replicates, width, rows)

    monkeypatch.setattr(type(llm), "orders", counted)
    monkeypatch.setattr(runs, "_MAX_KEYS", keys)
    orders = runs.DrawCache()
    for row in [*range(40), *range(40)]:
        assert list(orders.of(llm, row, 2)) == whole[row, : 9 - row % 4].tolist()
    assert max(seen) <= max(keys, 9)
    assert sum(seen) == 9 * 40  # each once
