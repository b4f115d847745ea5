"""schemathesis asks a running server what its OpenAPI description allows, and what it does not:
every answer is as described.
"""

import json
from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from raw_http import ask
from small import write_toy

from feval.serving import serve
from feval.serving.openapi import description

schemathesis = pytest.importorskip(
    "schemathesis", reason="schemathesis is not installed (the extra dev has it)"
)
pytest.importorskip("uvicorn", reason="the extra serve is not installed")

pytestmark = pytest.mark.slow

EXAMPLES = 40
FUZZING = settings(
    max_examples=EXAMPLES, phases=(Phase.explicit, Phase.generate), derandomize=True, deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
PATHS = description()["paths"]
OPERATIONS = [
    (path, method) for path, item in PATHS.items() for method in item if method != "parameters"
]
WITH_BODY = [(path, method) for path, method in OPERATIONS if "requestBody" in PATHS[path][method]]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    answers = [[str(j) for j in range(12)] for _ in range(3)]
    recording = write_toy(
        tmp_path_factory.mktemp("fuzz") / "toy",
        {"alpha": answers, "beta": answers},
        ["0", "1", "2"],
    )
    with serve(recording, recycle=True) as running:
        yield running


@pytest.fixture(scope="module")
def schema(server):
    result = ask(server.port, "GET", "/openapi.json").json
    loaded = schemathesis.openapi.from_dict(result)
    loaded.config.update(base_url=f"http://127.0.0.1:{server.port}")
    return loaded


def test_the_description_lists_every_route_and_the_models_that_are_served(server):
    result = ask(server.port, "GET", "/openapi.json").json
    assert result == json.loads(json.dumps(description(["alpha", "beta"])))
    assert result["openapi"].startswith("3.1")
    assert ask(server.port, "GET", "/run/mine/openapi.json").json == result


def answered(case, *, valid):
    """Send what schemathesis made; the answer must be as described. Its status."""
    from schemathesis import checks
    from schemathesis.specs.openapi import checks as described

    wanted = [
        checks.not_a_server_error,
        described.status_code_conformance,
        described.content_type_conformance,
        described.response_schema_conformance,
    ]
    if not valid:
        wanted.append(described.negative_data_rejection)
    response = case.call()
    case.validate_response(response, checks=wanted)
    return int(response.status_code)


@pytest.mark.parametrize(
    ("path", "method", "valid"),
    [(*one, True) for one in OPERATIONS] + [(*one, False) for one in WITH_BODY],
)
def test_every_answer_is_as_described(server, schema, path, method, valid):
    modes = schemathesis.GenerationMode
    strategy = schema[path][method.upper()].as_strategy(
        generation_mode=modes.POSITIVE if valid else modes.NEGATIVE
    )

    @FUZZING
    @given(case=strategy)
    def asked(case):
        answered(case, valid=valid)

    asked()
    assert ask(server.port, "GET", "/feval/health").status == 200


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/completions", "/run/{run}/v1/chat/completions"]
)
def test_requests_that_mean_a_recorded_question_are_mostly_answered(server, schema, path):
    strategy = schema[path]["POST"].as_strategy(
        generation_mode=schemathesis.GenerationMode.POSITIVE
    )
    statuses = Counter()

    @settings(FUZZING, max_examples=3 * EXAMPLES, phases=(Phase.generate,))
    @given(case=strategy)
    def asked(case):
        case.headers = {}
        if "{run}" in path:  # names that look like keys are refused, and many that are made up do
            case.path_parameters = {"run": "mine"}
        case.body |= {"model": "alpha", "feval": None, "metadata": None}
        case.body["n"] = min(case.body.get("n") or 1, 4)
        if "messages" in case.body:
            case.body["messages"] = [{"role": "user", "content": "What is question 1?"}]
        else:
            case.body["prompt"] = "What is question 1?"
        # Log-probabilities were not recorded, and best_of below n is an error of its own.
        case.body |= {"logprobs": None, "top_logprobs": None, "best_of": None}
        statuses[answered(case, valid=True)] += 1

    asked()
    assert statuses[200] > sum(statuses.values()) * 0.5, statuses
