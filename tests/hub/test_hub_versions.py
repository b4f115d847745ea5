"""The tests of the Hub with another huggingface_hub: FEVAL_HUB_PYTHONS names the interpreters that
have one. Opt-in.

python -m venv oldest && oldest/bin/pip install -e .[dev] "huggingface-hub==1.31.0"
FEVAL_HUB_PYTHONS=oldest/bin/python python -m pytest tests/hub/test_hub_versions.py
"""

import os
import subprocess

import pytest
from places import ROOT

PYTHONS = [name for name in os.environ.get("FEVAL_HUB_PYTHONS", "").split(os.pathsep) if name]
TESTS = (
    "hub/test_hub_push.py",
    "hub/test_hub_recordings.py",
    "hub/test_datasets.py",
    "recorders/work/test_record_from_hub.py",
)
# Clients before 1.33 leave a socket behind where two threads make their session at once, and Python
# says so.
LEFT_TO_THE_COLLECTOR = (
    "-W",
    "ignore::ResourceWarning",
    "-W",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)


@pytest.mark.skipif(
    not PYTHONS, reason="FEVAL_HUB_PYTHONS names no interpreter with another huggingface_hub"
)
@pytest.mark.parametrize("python", PYTHONS or [""])
def test_the_tests_of_the_hub_pass_with_another_client(python):
    tests = [str(ROOT / "tests" / name) for name in TESTS]
    process = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *LEFT_TO_THE_COLLECTOR, *tests],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert process.returncode == 0, process.stdout[-4000:] + process.stderr[-2000:]
