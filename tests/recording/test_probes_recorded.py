"""Probes in a recording: what is added is read, hashed and verified, in every derived recording
too.
"""

import re
import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from command_line import feval, told
from hypothesis import given, settings, strategies as st
from places import read_data
from recorded_probes import ALPHA, ANSWERS, BETA, CUE, GOLDS, as_words, probe_words, write_probed
from small import change_column, changed_manifest, restate, write_toy

from feval.errors import (
    ConflictError,
    DamagedRecordingError,
    FevalError,
    NotRecordedError,
    UsageError,
)
from feval.recording import ProbeRows, open_recording, verify_recording
from feval.recording.layout.flat import FlatArray, pack


@pytest.fixture(scope="module")
def probed(tmp_path_factory):
    return write_probed(tmp_path_factory.mktemp("probed") / "toy")


def test_probes_are_read_as_arrays(probed):
    recording = open_recording(probed)
    probes = recording.probes("toy", "alpha")
    assert probes.interval == 5
    assert probes.counts().tolist() == [[2, 0, 1], [0, 0, 0], [0, 0, 0], [1, 3, 0]]
    assert probe_words(recording, "alpha") == as_words(ALPHA)
    assert probe_words(recording, "org/beta") == as_words(BETA)
    assert probes.output_tokens is not None
    assert probes.output_tokens.tolist() == [2, 2, -1, -1, -1, -1, -1]
    np.testing.assert_array_equal(
        probes.confidences, np.array([0.5, np.nan, 0.25] + [np.nan] * 4, np.float32)
    )
    beta = recording.probes("toy", "org/beta")
    assert (beta.interval, beta.output_tokens, beta.confidences) == (None, None, None)


def test_probes_come_back_as_they_were_added(probed):
    recording = open_recording(probed)
    assert list(recording.probe_rows("toy", "alpha")) == ALPHA
    assert list(recording.probe_rows("toy", "org/beta")) == BETA


def test_the_manifest_counts_them(probed):
    manifest = open_recording(probed).manifest.raw
    assert manifest["features"] == ["probes"]
    counts = {"traces": 4, "probes": 7, "no_answer": 1, "output_tokens": 4}
    assert manifest["probes"][0] == {
        "dataset": "toy",
        "llm": "alpha",
        "cue": CUE,
        "interval": 5,
        **counts,
    }
    assert manifest["probes"][1]["interval"] is None
    assert verify_recording(probed).problems == ()


def test_answers_of_cots_keep_their_codes(probed, tmp_path):
    without = open_recording(write_toy(tmp_path / "without", ANSWERS, GOLDS))
    with_probes = open_recording(probed)
    leaves = {
        key: leaf for key, leaf in with_probes.manifest.leaves.items() if key.name != "probes"
    }
    assert leaves == without.manifest.leaves
    assert without.manifest.raw["features"] == []
    assert without.manifest.raw["probes"] == []
    for llm in ANSWERS:
        np.testing.assert_array_equal(
            with_probes.votes("toy").llms[llm].codes, without.votes("toy").llms[llm].codes
        )


def test_equal_answers_of_probes_and_cots_vote_together(tmp_path):
    rows = [ProbeRows("toy/0", [0, 0], [5, 10], ["0.50", "3"], ["0.50", "3"])]
    equality = {"kind": "number", "equality": "tolerance-0.001"}
    out = write_probed(
        tmp_path / "r", {"alpha": rows}, {"alpha": [["0.5", "7"]]}, golds=["3.0001"], **equality
    )
    recording = open_recording(out)
    votes, probes = recording.votes("toy"), recording.probes("toy", "alpha")
    assert probes.codes.tolist() == [votes.llms["alpha"].codes[0, 0], votes.gold[0]]
    assert verify_recording(out).problems == ()


def test_probes_change_nothing_among_the_answers_of_cots(tmp_path):
    """Within 0.3, the probe's 0.9 would be the first of a party with 1.1, and leave 1.3 apart, if
    it came first.
    """
    rows = [ProbeRows("toy/0", [0, 0], [5, 10], ["0.9", "1.7"], ["0.9", "1.7"])]
    number, answers = {"kind": "number", "equality": "tolerance-0.3"}, {"alpha": [["1.3", "1.1"]]}
    out = write_probed(tmp_path / "r", {"alpha": rows}, answers, golds=["1.3"], **number)
    recording, without = (
        open_recording(out),
        open_recording(write_probed(tmp_path / "w", {}, answers, golds=["1.3"], **number)),
    )
    assert (
        recording.votes("toy").llms["alpha"].codes.tolist()
        == without.votes("toy").llms["alpha"].codes.tolist()
        == [[0, 0]]
    )
    assert recording.probes("toy", "alpha").codes.tolist() == [0, 1]
    assert verify_recording(out).problems == ()


@pytest.mark.parametrize(("changes", "sentence"), read_data("recordings.json")["bad probes"])
def test_bad_probes_are_refused(tmp_path, changes, sentence):
    with pytest.raises((ConflictError, UsageError), match=sentence):
        write_probed(tmp_path / "r", {"alpha": [replace(ALPHA[0], **changes)]})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("probes", "cue", "sentence"),
    [
        ({"nobody": []}, CUE, "whose CoTs were not added"),
        ({"alpha": ALPHA[::-1]}, CUE, "'toy/0' comes twice or out of order"),
        ({"alpha": []}, "\ud800", "cannot be stored"),
    ],
)
def test_probes_out_of_place_are_refused(tmp_path, probes, cue, sentence):
    with pytest.raises((ConflictError, UsageError), match=sentence):
        write_probed(tmp_path / "r", probes, cue=cue)


def test_what_has_no_probes_says_so(tmp_path):
    recording = open_recording(write_toy(tmp_path / "r", ANSWERS, GOLDS))
    assert not recording.has_probes("toy", "alpha")
    with pytest.raises(
        NotRecordedError, match=r"holds no probes of alpha on toy.*Import a source that has probes"
    ):
        recording.probes("toy", "alpha")
    with pytest.raises(NotRecordedError, match="holds no CoTs of 'gamma'"):
        recording.probes("toy", "gamma")


@st.composite
def stores(draw):
    """Pools of an LLM, ragged, and probes at any offsets; a question may have neither."""
    answer = st.sampled_from([None, "1", "2", "3", "é"])
    pools = draw(st.lists(st.lists(answer, max_size=4), min_size=1, max_size=4))
    rows = []
    for index, own in enumerate(pools):
        probes = (
            sorted(draw(st.sets(st.tuples(st.integers(0, len(own) - 1), st.integers(1, 9)))))
            if own
            else []
        )
        size = len(probes)
        answers = draw(st.lists(answer, min_size=size, max_size=size))
        optional = [
            st.sampled_from([None, "", "4"]),
            st.sampled_from([None, 0, 40_000]),
            st.sampled_from([None, 0.1]),
        ]
        texts, tokens, confidences = (
            draw(st.none() | st.lists(o, min_size=size, max_size=size)) for o in optional
        )
        if size:
            columns = [list(column) for column in zip(*probes, strict=True)]
            rows.append(
                ProbeRows(f"toy/{index}", *columns, answers, answers, texts, tokens, confidences)
            )
    return pools, rows


def plain(rows):
    """As reading gives it back: columns without any value are `None`, confidences have 32 bits."""
    names = ("texts", "output_tokens", "confidences")
    values = {name: getattr(rows, name) for name in names}
    values = {
        name: v if v is not None and any(each is not None for each in v) else None
        for name, v in values.items()
    }
    if values["confidences"] is not None:
        values["confidences"] = [
            None if c is None else float(np.float32(c)) for c in values["confidences"]
        ]
    return replace(rows, **values)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(stores())
def test_any_probes_come_back(drawn):
    pools, rows = drawn
    with TemporaryDirectory() as folder:
        out = write_probed(
            Path(folder) / "r", {"alpha": rows}, {"alpha": pools}, golds=["2"] * len(pools)
        )
        recording = open_recording(out)
        assert list(recording.probe_rows("toy", "alpha")) == [plain(each) for each in rows]
        assert probe_words(recording, "alpha") == as_words(rows)
        assert verify_recording(out).problems == ()


FLAT, PARQUET = "votes/toy/alpha.probes", "probes/toy/alpha.parquet"
Arrays = dict[str, Any]


@pytest.fixture
def copy(probed, tmp_path):
    """The recording again, its files to be changed."""
    shutil.copytree(probed, tmp_path / "toy")
    return tmp_path / "toy"


def rewrite(folder, change, header=None):
    """Change the arrays of the flat file of alpha's probes, and let the manifest agree with it."""
    probes = open_recording(folder).probes("toy", "alpha")
    names = ("starts", "offsets", "codes", "output_tokens", "confidences")
    arrays = {name: getattr(probes, name).copy() for name in names}
    change(arrays)
    blocks = pack(
        {"dataset": "toy", "llm": "alpha", **(header or {})},
        {name: FlatArray(a.dtype.name, a) for name, a in arrays.items()},
    )
    (folder / FLAT).unlink()
    (folder / FLAT).write_bytes(b"".join(blocks))
    restate(folder, FLAT)


def put(name, place, value):
    def change(arrays):
        arrays[name][place] = value

    return change


@pytest.mark.parametrize(
    ("change", "header", "sentence"),
    [
        *(
            (put(*changed), {}, sentence)
            for *changed, sentence in read_data("recordings.json")["flat files of probes"]
        ),
        (lambda a: a.update(starts=a["starts"][:-1]), {}, "starts should rise"),
        (
            lambda a: a.update(starts=np.array([0, 2, 2, 3, 3, 3, 4, 4, 4, 4, 7, 7, 7])),
            {},
            "CoTs that were not recorded",
        ),
        (lambda a: a.update(codes=a["codes"][:-1]), {}, "different lengths"),
        (lambda a: a.pop("codes"), {}, "should have"),
        (lambda a: a.update(gold=a["codes"]), {}, "'gold' has the wrong form"),
        (
            lambda a: a.update({"codes.1": a["codes"]}),
            {},
            "should have 5 arrays, found 6; 'codes.1' is odd",
        ),
        (lambda a: None, {"llm": "org/beta"}, "is of 'org/beta' on 'toy'"),
    ],
)
def test_a_flat_file_made_by_hand_is_refused(copy, change, header, sentence):
    rewrite(copy, change, header)
    with pytest.raises(DamagedRecordingError, match=sentence):
        open_recording(copy).probes("toy", "alpha")


def more(arrays):
    arrays["starts"][-2:] += 1
    for name in ("offsets", "codes", "output_tokens", "confidences"):
        arrays[name] = np.append(arrays[name], arrays[name][-1:])
    arrays["offsets"][-1] += 5


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (put("codes", 0, 0), "codes"),
        (put("output_tokens", 2, 3), "output_tokens"),
        (put("confidences", 0, 0.75), "confidences"),
        (put("confidences", 1, 0.5), "confidences"),
        (more, "starts"),
    ],
)
def test_a_flat_file_that_contradicts_the_parquet_file_is_found(copy, change, name):
    rewrite(copy, change)
    [problem] = verify_recording(copy).problems
    what = f"it contradicts the Parquet files ({name} of probes)"
    assert problem == f"{FLAT}: {what}; merge or import again."


@pytest.mark.parametrize(
    ("column", "change", "sentence"),
    [
        ("offset", lambda v: [10, 5, *v[2:]], "CoT 0 after 5 tokens comes behind CoT 0 after 10"),
        ("offset", lambda v: [None, *v[1:]], "1 values of 'offset' are missing"),
        ("offset", lambda v: [-5, *v[1:]], "'offset' should be 0 to"),
        (
            "offset",
            lambda v: [str(n) for n in v],
            "the column 'offset' should hold integer, found text",
        ),
        (
            "sample_index",
            lambda v: [0, 0, 7, *v[3:]],
            "CoT 7 after 5 tokens: the question has 3 CoTs",
        ),
        ("question_id", lambda v: [*v[:6], "toy/0"], "'toy/0'.* comes twice or out of order"),
        ("confidence", lambda v: [float("nan"), *v[1:]], "confidences should hold finite numbers"),
        ("answer_raw", lambda v: ["other", *v[1:]], "Leaf toy / alpha / probes"),
        ("answer", lambda v: [None, *v[1:]], "probes should be .*'no_answer': 2"),
        ("llm", lambda v: ["beta"] * len(v), "its column `llm` names another LLM"),
    ],
)
def test_a_parquet_file_made_by_hand_is_found(copy, column, change, sentence):
    change_column(copy, PARQUET, column, change)
    problems = " ".join(verify_recording(copy).problems)
    assert re.search(sentence, problems), problems


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda m: m["probes"][0].update(interval=None), "probes should be"),
        (lambda m: m["probes"][0].update(cue="other"), "Leaf toy / alpha / probes"),
        (lambda m: m["probes"][0].update(interval=0), "interval"),
        (
            lambda m: m["probes"].insert(0, m["probes"][0] | {"cue": "other"}),
            "two entries for the same in the field 'scores or probes'",
        ),
        (
            lambda m: m["probes"][0].update(llm="gamma"),
            "has probes of .gamma. on .toy., and no CoTs of it",
        ),
        (
            lambda m: m.update(pairs=m["pairs"][1:]),
            "has probes of 'alpha' on 'toy', and no CoTs of it",
        ),
        (
            lambda m: m.update(features=[]),
            r"states the features \[\], and lists files and leaves of \['probes'\]",
        ),
        (lambda m: m["files"].pop(FLAT), "votes/toy/alpha.probes: not listed"),
        (
            lambda m: m["probes"].clear(),
            "has probes of 'alpha' on 'toy' among its leaves or among its entries, and not in both",
        ),
    ],
)
def test_a_manifest_that_says_something_else_is_found(copy, change, sentence):
    with pytest.raises(FevalError, match=sentence):
        try:
            with changed_manifest(copy) as manifest:
                change(manifest)
        except ValueError as error:
            raise FevalError(str(error)) from error
        raise FevalError(" ".join(verify_recording(copy).problems))


def test_info_and_the_readme_name_probes_and_interval(probed):
    assert told("info", probed)["probes"] == open_recording(probed).manifest.raw["probes"]
    page = feval("info", probed).stdout
    assert re.search(r"alpha\s+4\s+7\s+5\s+1\s+4\s+</think>", page)
    assert re.search(r"org/beta\s+1\s+2\s+-\s+0\s+-\s+</think>", page)
    readme = (probed / "README.md").read_text()
    assert "| toy | `alpha` | 4 | 7 | 5 | `</think> The answer is` |" in readme
    assert "| toy | `org/beta` | 1 | 2 | irregular | `</think> The answer is` |" in readme


def test_a_cue_steers_no_terminal_from_the_readme(tmp_path):
    readme = (write_probed(tmp_path / "r", cue="\x1b[2J\u202eso") / "README.md").read_text()
    assert r"| `\x1b[2J\u202eso` |" in readme
