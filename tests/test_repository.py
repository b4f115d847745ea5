"""What is in the repository can be given to a stranger: no traces of a machine, no big files,
scripts that parse.
"""

import re
import shutil
import socket
import subprocess
import tomllib
from functools import cache

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from places import ROOT

import feval

MAX_BYTES = 1_000_000

# Written as patterns that do not match themselves.
MACHINE_PATHS = re.compile(r"(?<![\w.~])/(?:work|farm|root|home/\w+|Users/\w+|var/folders)/")
REGISTRIES = re.compile(r"pypi\.org|pythonhosted\.org|anaconda\.org|npmjs\.com")
WHO_WROTE_IT = re.compile(
    r"\b(?:coding|AI) (?:agent|assistant|session)|\bsub-?agent|\b(?:this|our) session\b",
    re.IGNORECASE,
)
BESIDE = "../shared"
MAY_LOOK_BESIDE = ("tests/", "benchmarks/", ".ci/")

SHELL = [
    ".ci/venv.sh",
    "tests/run.sh",
    "tests/clients/run.sh",
    "examples/coupled.sh",
    "examples/demo.sh",
    "examples/record_demo.sh",
    "docs/build.sh",
    "docs/pictures.sh",
]


def files():
    """Every file git knows, or would add."""
    command = [
        "git",
        "-C",
        str(ROOT),
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout, so there is no list of the repository's files")
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


@cache
def lines():
    """Every line of every text file, each with its place."""
    found = []
    for path in files():
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        place = path.relative_to(ROOT).as_posix()
        found.extend(
            (f"{place}:{number}", line) for number, line in enumerate(text.splitlines(), 1)
        )
    return found


def matching(pattern):
    return [f"{place}: {line.strip()[:100]}" for place, line in lines() if pattern.search(line)]


def test_no_path_of_a_machine_stands_anywhere():
    assert matching(MACHINE_PATHS) == []


def test_no_merge_is_unfinished():
    assert matching(re.compile(r"^(?:<{7}|>{7}) \S")) == []


def test_no_package_registry_is_named():
    assert matching(REGISTRIES) == []


def test_the_repository_speaks_of_the_project_only():
    assert matching(WHO_WROTE_IT) == []


def test_only_tests_and_benchmarks_look_beside_the_checkout():
    assert [
        place for place, line in lines() if BESIDE in line and not place.startswith(MAY_LOOK_BESIDE)
    ] == []


def test_no_file_is_big():
    assert [str(path) for path in files() if path.stat().st_size > MAX_BYTES] == []


@pytest.mark.parametrize("name", SHELL)
@pytest.mark.parametrize("shell", ["sh", "bash", "dash"])
def test_scripts_are_posix_shell(name, shell):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([shell, "-n", str(ROOT / name)], check=True)


def test_no_shell_script_was_forgotten():
    assert {path.relative_to(ROOT).as_posix() for path in files() if path.suffix == ".sh"} == set(
        SHELL
    )


WORKFLOWS = {
    path.name: yaml.safe_load(path.read_text("utf-8"))
    for path in (ROOT / ".github/workflows").glob("*.yml")
}
MAY_WRITE = {
    ("release.yml", "publish"): {"id-token": "write", "attestations": "write"},
    ("release.yml", "announce"): {"contents": "write"},
}


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_may_read_and_no_job_more_than_it_needs(name):
    assert WORKFLOWS[name]["permissions"] == {"contents": "read"}
    for job, steps in WORKFLOWS[name]["jobs"].items():
        assert steps.get("permissions") == MAY_WRITE.get((name, job)), job


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_holds_no_password_and_runs_actions_by_their_hash(name):
    text = (ROOT / ".github/workflows" / name).read_text("utf-8")
    assert "secrets." not in text
    assert "pull_request_target" not in text
    actions = re.findall(r"uses: (\S+)", text)
    assert actions
    assert {action for action in actions if not re.search(r"@[0-9a-f]{40}$", action)} <= {
        "pypa/gh-action-pypi-publish@release/v1"
    }
    assert text.count("actions/checkout@") == text.count("persist-credentials: false")


def test_every_locked_file_has_a_hash_and_every_dependency_is_locked():
    entries = re.split(r"\n(?=\S)", (ROOT / ".ci/locked.txt").read_text("utf-8"))
    assert [entry for entry in entries if "==" not in entry or "--hash=sha256:" not in entry] == []
    locked = {
        canonicalize_name(entry.partition("==")[0]): entry.partition("==")[2].split()[0]
        for entry in entries
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for line in [*project["dependencies"], *project["optional-dependencies"]["dev"]]:
        requirement = Requirement(line)
        assert requirement.specifier.contains(locked[canonicalize_name(requirement.name)]), line


def test_the_changelog_begins_with_this_version():
    released = re.findall(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert released[0] == feval.__version__


def test_the_citation_names_this_version():
    assert f"\nversion: {feval.__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")


def test_the_licence_is_the_one_pyproject_names():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    licence = (ROOT / "LICENSE").read_text("utf-8")
    assert project["license"] == "Apache-2.0"
    assert "Apache License" in licence
    assert "END OF TERMS AND CONDITIONS" in licence


def test_the_network_is_closed_to_tests():
    with socket.socket() as door, pytest.raises(OSError, match="the network is closed"):
        door.connect(("192.0.2.1", 80))
