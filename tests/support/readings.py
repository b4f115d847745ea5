"""What the readers of a recording give."""

from feval.recording import open_recording
from feval.replay import load


def readings(folder):
    """Everything of the dataset "toy"."""
    recording = open_recording(folder)
    votes = recording.votes("toy")
    result = [recording.hash, list(votes.question_ids)]
    result += [[votes.candidates(row), votes.aliases(row)] for row in range(len(votes))]
    for llm in recording.llm_names("toy"):
        pair = "toy", llm
        channels, scorers = recording.channels(*pair), recording.scorers(*pair)
        result += [channels, list(recording.pools(*pair)), recording.prompts(*pair)]
        result += [text for group in recording.scan_texts(*pair) for text in group]
        result += [list(recording.scan(part, *pair)) for part in channels]
        result += [list(recording.score_rows(*pair, scorer)) for scorer in scorers]
        result += [repr(recording.scores(*pair, scorer)) for scorer in scorers]
        if "logprobs" in channels:
            result.append(repr(recording.logprobs(*pair)))
        _, [view] = load("toy", [llm], folder, prices="none")
        result += [view.pool.output_tokens.tolist(), votes.llms[llm].finish.tolist()]
        for row in range(len(votes)):
            result += [recording.texts(*pair, row), recording.texts_near(*pair, row)[row]]
            result += [recording.reasoning(*pair, row), view.texts(row), view.reasoning(row)]
    return result
