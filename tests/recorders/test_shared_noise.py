"""Coupled sampling: the noise as its page defines it, what it does to samples, and that nothing
else is taken for it.
"""

import hashlib
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from command_line import said
from recording_doubles import completions
from scipy import stats
from settings_files import settings_file
from splitmix import GOLDEN_RATIO, mix
from tiny_export import export

from feval.errors import OutOfRangeError, UsageError
from feval.estimators.coupling import gumbel_coupling_joint
from feval.forecast.coupled import couple
from feval.recording import merge, open_recording, select
from feval.replay import load
from recorders import tiny
from recorders.backends.local import Tiny, TransformersLocal
from recorders.request import Decoding, Message, Request
from recorders.shared_noise import END_OF_ANSWER, TokenNoise, question_noise, token_texts


def questions(count):
    return [problem.question for problem in tiny.test_questions()[:count]]


def asked(model, text, number=0, **decoding):
    settings = {"temperature": 1.0, "max_tokens": 60, "noise_seed": 7} | decoding
    return Request(
        "tiny_sums", f"tiny_sums/{number}", (Message("user", text),), model, Decoding(**settings)
    )


def drawn(request, samples):
    return completions(Tiny(), request, samples)


def plain_noise(seed, dataset, question, sample, position, text):
    """The scheme once more, in Python's integers."""
    name = json.dumps(["feval/gumbel-v1", seed, dataset, question]).encode()
    h = int.from_bytes(hashlib.sha256(name).digest()[:8], "little")
    s = mix(mix(h + (sample + 1) * GOLDEN_RATIO) + (position + 1) * GOLDEN_RATIO)
    t = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
    return -math.log(((mix(s + t) >> 12) + 0.5) / 2**52)


def test_noise_is_as_it_is_written_down():
    texts = ["a", " b", "\u0120", "日"]
    noise = TokenNoise(texts)
    for seed, sample, position in [(0, 0, 0), (7, 39, 511), (2**63 - 1, 2**32, 10**6)]:
        start = question_noise(seed, "gsm8k", "gsm8k/ü")
        found = noise.exponentials(start, [sample], position)[0]
        expected = [plain_noise(seed, "gsm8k", "gsm8k/ü", sample, position, text) for text in texts]
        assert found == pytest.approx(expected, rel=1e-15)


def test_tokens_go_by_their_text_whatever_the_vocabulary():
    start = question_noise(1, "d", "q")
    one = TokenNoise(["x", "y", "z"]).exponentials(start, [0, 1], 5)
    other = TokenNoise(["z", "new", "x"]).exponentials(start, [0, 1], 5)
    assert np.array_equal(one[:, [2, 0]], other[:, [0, 2]])
    twice = TokenNoise(["x", "x"]).exponentials(start, [0], 5)[0]
    assert twice[0] == one[0, 0]
    assert twice[1] != twice[0]


def test_noise_is_exponential_and_independent_between_samples_positions_and_questions():
    noise = TokenNoise([f"token {n}" for n in range(400)])
    starts = [question_noise(3, "d", f"q{n}") for n in range(2)]
    tables = [
        noise.exponentials(start, range(50), position) for start in starts for position in (0, 1)
    ]
    everything = np.concatenate([table.ravel() for table in tables])
    assert stats.kstest(everything, "expon").pvalue > 1e-3
    flat = np.stack([table.ravel() for table in tables])
    assert np.abs(np.corrcoef(flat) - np.eye(4)).max() < 5 / math.sqrt(flat.shape[1])
    within = np.corrcoef(tables[0])
    assert np.abs(within - np.eye(50)).max() < 6 / math.sqrt(400)


def test_coupled_draws_follow_the_closed_form_and_are_stable():
    noise = TokenNoise(["a", "b", "c"]).exponentials(question_noise(0, "d", "q"), range(40_000), 0)
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])
    first, second = (noise / p).argmin(axis=1), (noise / q).argmin(axis=1)
    counts = np.zeros((3, 3))
    np.add.at(counts, (first, second), 1)
    expected = gumbel_coupling_joint(p, q) * len(noise)
    possible = expected > 0
    assert counts[~possible].sum() == 0, "counterfactual stability"
    assert stats.chisquare(counts[possible], expected[possible]).pvalue > 1e-3


def test_one_model_under_two_names_gives_one_chain():
    [text] = questions(1)
    request = asked("feval/tiny-42k", text)
    together = drawn(request, range(40))
    assert [drawn(request, [sample])[0] for sample in (0, 19)] == [together[0], together[19]]
    assert len({completion.text for completion in together}) > 5, (
        "different samples have noise of their own"
    )
    other = drawn(asked("feval/tiny-42k", text, noise_seed=8), range(40))
    assert [c.text for c in other] != [c.text for c in together]
    apart = drawn(asked("feval/tiny-42k", text, number=1), range(40))
    assert [c.text for c in apart] != [c.text for c in together]


def test_a_coupled_request_is_another_request():
    [text] = questions(1)
    keys = {asked("m", text, noise_seed=seed).key() for seed in (None, 0, 1)}
    assert len(keys) == 3
    content = asked("m", text, noise_seed=5).decoding.content()
    assert content["noise"] == {"scheme": "gumbel-v1", "seed": 5}
    assert "noise" not in asked("m", text, noise_seed=None).decoding.content()


def test_noise_that_makes_no_sense_is_refused():
    with pytest.raises(UsageError, match="no seed of their own"):
        Decoding(seed=1, noise_seed=2).check()
    with pytest.raises(UsageError, match="temperature 0"):
        Decoding(temperature=0, noise_seed=2).check()
    with pytest.raises(OutOfRangeError, match="noise_seed"):
        Decoding(noise_seed=-1).check()
    with pytest.raises(OutOfRangeError, match="noise seed"):
        question_noise(-1, "d", "q")


def recorded(out, llm, options):
    named = f"record --dataset tiny_sums --llm feval/tiny-{llm} --max-tokens 40 --temperature 1"
    said(f"{named} --out {out} {options} --quiet")
    return open_recording(out)


def texts_of(recording):
    dataset, [llm] = load("tiny_sums", None, recording, prices="none")
    return [llm.texts(row) for row in range(len(dataset))]


def test_noise_goes_on_where_a_recording_is_topped_up_and_stays_with_what_is_made_of_it(tmp_path):
    coupled = " ".join(["--set coupled=true", *settings_file(tmp_path, "noise_seed = 7")])
    four, two = f"--first 4 --samples 6 {coupled}", "--first 2 --samples 3"
    whole = recorded(tmp_path / "whole", "30k", four)
    part = recorded(tmp_path / "part", "30k", f"{two} {coupled}")
    assert texts_of(part) == [texts[:3] for texts in texts_of(whole)[:2]]
    more = recorded(tmp_path / "more", "30k", f"{four} --from {tmp_path}/part")
    assert texts_of(more) == texts_of(whole)
    other = recorded(tmp_path / "other", "42k", four)
    merge([tmp_path / "whole", tmp_path / "other"], tmp_path / "both")
    select(tmp_path / "both", tmp_path / "few", samples=4)
    for folder in ("both", "few"):
        dataset, llms = load("tiny_sums", None, open_recording(tmp_path / folder), prices="none")
        assert [llm.noise for llm in llms] == [("gumbel-v1", 7)] * 2
        told = couple(dataset, llms, samples=3, resamples=20)
        assert told.pairs[0].calls == (6 if folder == "both" else 4)
    assert texts_of(other) != texts_of(whole)
    # What was begun with other noise, or with none, is asked anew: none of its CoTs is taken for a
    # coupled one.
    apart = recorded(tmp_path / "apart", "30k", two)
    assert texts_of(apart) != texts_of(part)


def test_vocabularies_of_every_spelling_say_the_same():
    byte_level = ["<|end|>", "Hello", "\u0120world", "\u010a", "\u00c3\u00bc", "\u00c3", "<|pad|>"]
    pieces = ["</s>", "Hello", "\u2581world", "<0x0A>", "ü", "<0xC3>", "<pad>"]
    one, other = (token_texts(tokens, [6], [0]) for tokens in (byte_level, pieces))
    assert one[:6] == other[:6] == [END_OF_ANSWER, "Hello", " world", "\n", "ü", "\udcc3"]
    assert (one[6], other[6]) == ("\x00<|pad|>", "\x00<pad>")
    # A piece and its byte: the piece is what texts are written with, whichever comes first.
    assert token_texts(["<0x41>", "\u2581A", "A"], [], []) == ["\x00<0x41>", " A", "A"]
    several = token_texts(["<a>", "<b>", "word"], [], [0, 1])
    assert several == [END_OF_ANSWER, "\x00<b>", "word"]


def test_of_several_ends_the_one_of_replies_is_shared():
    """Without torch: a vocabulary is only read."""
    spelled = ["<|end_of_text|>", "<|eot|>", "\u0120word", "x"]
    backend = object.__new__(TransformersLocal)
    backend._model = SimpleNamespace(
        config=SimpleNamespace(get_text_config=lambda: SimpleNamespace(vocab_size=5)),
        generation_config=SimpleNamespace(eos_token_id=[0, 1]),
    )

    class Tokenizer:
        all_special_ids = (0, 1)
        eos_token_id = 1

        def __len__(self):
            return len(spelled)

        def convert_ids_to_tokens(self, ids):
            return [spelled[n] for n in ids]

    backend._tokenizer = Tokenizer()
    assert backend.vocabulary() == [
        "\x00<|end_of_text|>",
        END_OF_ANSWER,
        " word",
        "x",
        "\x00<unused 4>",
    ]


def test_a_transformers_model_draws_the_same_tokens(tmp_path):
    for name in ("torch", "transformers"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    options = {"device": "cpu", "dtype": "float64", "local_files_only": True}
    folder = str(export("feval/tiny-30k", tmp_path))
    for number, text in enumerate(questions(4)):
        for settings in ({}, {"temperature": 0.7, "top_p": 0.9}):
            request = asked("feval/tiny-30k", text, number, max_tokens=40, **settings)
            ours = drawn(request, range(16))
            theirs = completions(TransformersLocal(folder, **options), request, range(16))
            assert [c.text for c in ours] == [c.text.strip() for c in theirs]
            assert [c.output_tokens for c in ours] == [c.output_tokens for c in theirs]
