"""`feval import table`: what it understood comes first; then the recording, or with --dry-run
nothing.
"""

import pytest
from command_line import feval, said, told, words

from feval.recording import open_recording

TABLE = "prompt,target,model,output,tokens,reward,note\n" + "".join(
    f"What is 1 + {number}?,{number + 1},m,The answer is"
    f" {number + 1 + number % 2}.,5,0.{number},x\n"
    for number in range(4)
)
NAMED = "--dataset sums --answer-kind number --map question=prompt --map answer=target"


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "samples.csv"
    path.write_text(TABLE)
    return path


def test_shows_what_it_understood_and_makes_the_recording(table, tmp_path):
    result = said("import table", table, NAMED, "--score prm=reward --out", tmp_path / "out")
    shown = [line.split() for line in result.splitlines()]
    assert shown[3][:4] == ["target", "gold", "the", "gold"]
    assert shown[7][:4] == ["reward", "score", "of", "prm"]
    assert shown[8] == ["note", "not", "read", "x"]
    recording = open_recording(tmp_path / "out")
    assert recording.scorers("sums", "m") == ["prm"]
    assert [question.answer for question in recording.questions("sums")] == ["1", "2", "3", "4"]


def test_a_dry_run_writes_nothing(table, tmp_path):
    columns = told("import table", table, NAMED, "--map ignore=note --dry-run")["columns"]
    assert {column["column"]: column["read_as"] for column in columns} == {
        "prompt": "question", "target": "gold", "model": "llm", "output": "text",
        "tokens": "tokens", "reward": "", "note": ""
    }  # fmt: skip
    assert (columns[0]["example"], columns[-1]["meaning"]) == ("What is 1 + 0?", "ignored")
    assert [path.name for path in tmp_path.iterdir()] == ["samples.csv"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("table TABLE --dataset sums --map question=promt --dry-run", "no column 'promt'"),
        ("table TABLE --answer-kind number --out OUT", "does not name its dataset"),
        ("jsonl TABLE --dataset sums --map question=prompt --out OUT", "are for tables"),
        ("jsonl TABLE --answer-kind number --out OUT", "--dataset ID"),
        ("table TABLE --dataset sums --layout nothing --out OUT", "no layout 'nothing'"),
        ("table TABLE " + NAMED + " --map ignore=model --out OUT", "--map llm=note --score reward"),
        ("table MISSING --dataset sums --dry-run", "there is nothing"),
    ],
)
def test_says_what_to_do(table, tmp_path, arguments, sentence):
    places = {"TABLE": table, "OUT": tmp_path / "out", "MISSING": tmp_path / "missing"}
    result = feval("import", *(places.get(word, word) for word in words([arguments])))
    assert result.exit_code in {1, 2}
    assert sentence in result.output
    assert not (tmp_path / "out").exists()


OWN = "prompt_id,engine,completion,gold_answer,completion_tokens,rm\n" + "".join(
    f"p{question},{llm},The answer is {question + sample}.,{question},9,0.{sample}\n"
    for question in range(3)
    for llm in ("small", "mid", "large")
    for sample in range(2)
)


@pytest.mark.parametrize("dry", [False, True])
def test_one_failed_command_says_all_that_is_missing(tmp_path, dry):
    path = tmp_path / "own.csv"
    path.write_text(OWN)
    asked = feval("import table", path, "--dry-run" if dry else "")
    assert asked.exit_code == (0 if dry else 2)
    _, _, command = asked.stderr.strip().rpartition(" feval ")
    assert command == (
        f"import table {path} --dataset own --answer-kind number --map llm=engine"
        " --map question_id=prompt_id --score rm --out own-recording"
    )
    out = tmp_path / "out"
    said(command.replace("own-recording", str(out)))
    recording = open_recording(out)
    assert set(recording.llm_names("own")) == {"small", "mid", "large"}
    assert recording.scorers("own", "mid") == ["rm"]


def test_layouts_are_listed_with_the_formats():
    rows = told("ls formats")["formats"]
    assert {"table", "table --layout matharena"} <= {row["name"] for row in rows}
