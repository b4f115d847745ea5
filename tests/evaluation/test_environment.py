"""The budget environment: steps, rewards, budgets, and a policy as a method."""

import sys

import pytest
from small import letters, write_toy

from feval import evaluate, load, plurality
from feval.errors import MethodError, OutOfRangeError, PriceNotFoundError, UsageError
from feval.evaluation.environment import ASK_AGAIN, NEXT_LLM, STOP, BudgetEnvironment, as_method

CHEAP = letters("aba", "x-y", "bbb")
DEAR = letters("aa", "yy", "cb")
PROMPT = 7


@pytest.fixture(scope="module")
def replay(tmp_path_factory):
    out = write_toy(
        tmp_path_factory.mktemp("env") / "toy",
        {"gpt-4o-mini": CHEAP, "gpt-3.5-turbo": DEAR},
        ["a", "y", "b"],
    )
    return load("toy", recording=out, seed=1)


def agree(observation, mask):
    """Stop at two equal answers; else ask the same LLM again, then the next."""
    if observation.votes[:1] and observation.votes[0] >= 2:
        return STOP
    return next(action for action in (ASK_AGAIN, NEXT_LLM, STOP) if mask[action])


def test_an_episode_by_hand(replay):
    dataset, llms = replay
    env = BudgetEnvironment(dataset, llms, unit="tokens", rows=[0])
    seen, info = env.reset(seed=4)
    assert (seen.llm, seen.parties, seen.questions_left) == (-1, (), 1)
    # nothing can be stopped before something was asked
    assert info["action_mask"] == [False, True, False]
    chain = [llm.order(0, 4) for llm in llms]
    codes = [
        [llm.answers(0, [place])[0] for place in order]
        for llm, order in zip(llms, chain, strict=True)
    ]
    seen, reward, terminated, truncated, info = env.step(NEXT_LLM)
    assert (seen.llm, seen.parties) == (0, ((0, 0),))
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert info["spent"] == PROMPT + 10 + chain[0][0]  # sample i of the toy has 10 + i tokens
    seen, *_ = env.step(ASK_AGAIN)
    assert [party for _, party in seen.parties] == [0, int(codes[0][1] != codes[0][0])]
    seen, *_, info = env.step(NEXT_LLM)
    assert (seen.llm, seen.parties[-1][0], info["action_mask"]) == (1, 1, [True, False, True])
    seen, reward, terminated, truncated, info = env.step(STOP)
    votes = [*codes[0][:2], codes[1][0]]
    assert reward == float(max(votes, key=votes.count) == "a")
    assert (terminated, truncated, seen.questions_left) == (True, False, 0)
    assert info["action_mask"] == [False] * 3
    with pytest.raises(UsageError, match="call reset first"):
        env.step(STOP)


def test_a_budget_ends_the_episode_without_the_step_that_exceeds_it(replay):
    env = BudgetEnvironment(*replay, budget=25, unit="tokens")  # one prompt and one CoT, no more
    env.reset(seed=0)
    seen, *_ = env.step(NEXT_LLM)
    assert 25 - seen.budget_left in {PROMPT + 10, PROMPT + 11, PROMPT + 12}
    one = [party for _, party in seen.parties]
    _, reward, terminated, truncated, info = env.step(ASK_AGAIN)
    assert (terminated, truncated) == (False, True)
    assert reward in {0.0, 1.0}
    assert info["spent"] <= 25
    assert len(one) == 1


def test_an_episode_is_a_function_of_its_seed(replay):
    def play(seed):
        env = BudgetEnvironment(*replay)
        seen, info = env.reset(seed=seed)
        history, done = [seen], False
        while not done:
            seen, _, terminated, truncated, info = env.step(agree(seen, info["action_mask"]))
            history.append(seen)
            done = terminated or truncated
        return history

    assert play(3) == play(3)
    assert len({tuple(play(seed)) for seed in range(5)}) > 1
    assert {seen.question for seen in play(2)} - {""} == {
        f"What is question {i}?" for i in range(3)
    }


def test_a_policy_is_a_method(replay):
    def written_out(question, cheap, dear):
        seen = []
        for llm, most in ((cheap, 3), (dear, 2)):
            for _ in range(most):
                seen += llm.sample(1).answers
                leader = plurality(seen)
                if leader is not None and seen.count(leader) >= 2:
                    return leader
        return plurality(seen)

    learnt, plain = (evaluate(m, *replay, replicates=20) for m in (as_method(agree), written_out))
    assert learnt.method == "agree"
    assert learnt.right.tolist() == plain.right.tolist()
    assert learnt.usd.tolist() == plain.usd.tolist()
    with pytest.raises(MethodError, match="action 7, which is not possible"):
        evaluate(as_method(lambda *_: 7), *replay)


def test_nonsense_is_refused(replay, tmp_path):
    dataset, llms = replay
    for wrong, words in (
        ({"questions": 9}, "1 to 3 questions"),
        ({"unit": "euro"}, "usd or tokens"),
        ({"rows": []}, "1 to 0 questions"),
    ):
        with pytest.raises(UsageError, match=words):
            BudgetEnvironment(dataset, llms, **wrong)
    with pytest.raises(OutOfRangeError, match="above 0"):
        BudgetEnvironment(dataset, llms, budget=0)
    env = BudgetEnvironment(dataset, llms)
    env.reset()
    with pytest.raises(UsageError, match="Action 0 is not possible now; possible are: 1"):
        env.step(ASK_AGAIN)
    with pytest.raises(OutOfRangeError, match="numbered from 0"):
        env.reset(seed=-1)
    other = load("toy", recording=write_toy(tmp_path / "odd", {"nobody": CHEAP}, ["a", "y", "b"]))
    with pytest.raises(PriceNotFoundError, match="nobody"):
        BudgetEnvironment(*other)


def test_gymnasium_takes_it_for_one_of_its_own(replay, monkeypatch):
    checker = pytest.importorskip(
        "gymnasium.utils.env_checker", reason="Gymnasium is not installed"
    )
    for options in ({"budget": 60, "unit": "tokens"}, {"questions": 2}):
        game = BudgetEnvironment(*replay, **options).as_gymnasium()
        checker.check_env(game, skip_render_check=True)
        # it is the same game, and an action that is not possible stops, or begins
        plain, over = BudgetEnvironment(*replay, **options), False
        seen, info = plain.reset(seed=8)
        shown, masked = game.reset(seed=8)
        for action in [ASK_AGAIN, NEXT_LLM, NEXT_LLM, NEXT_LLM, *[ASK_AGAIN] * 20]:
            assert masked["action_mask"].tolist() == info["action_mask"]
            known = [tuple(row) for row in shown["parties"].tolist() if row[0] >= 0]
            assert (shown["llm"], known) == (seen.llm, [*seen.parties])
            left = seen.budget_left / 60 if "budget" in options else 1
            assert shown["budget_left"] == [left]
            if over:
                break
            shown, *ends, masked = game.step(action)
            if not info["action_mask"][action]:
                action = STOP if info["action_mask"][STOP] else NEXT_LLM
            seen, *own, info = plain.step(action)
            assert ends == own
            over = own[1] or own[2]
        assert over
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(UsageError, match="pip install gymnasium"):
        BudgetEnvironment(*replay).as_gymnasium()
