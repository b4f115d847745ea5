"""The command line, run in this process."""

import json

from typer.testing import CliRunner

from feval.cli import app


def feval(*arguments, **options):
    """Run a command: texts are split into words, all else, such as paths, is one word."""
    return CliRunner().invoke(app, words(arguments), prog_name="feval", **options)


def words(arguments):
    """The words of a command line."""
    return [
        word
        for each in arguments
        for word in (each.split() if isinstance(each, str) else [str(each)])
    ]


def failed(result, code, *pieces):
    """Assert that a command failed with one sentence on standard error and nothing on standard
    output.
    """
    assert (result.exit_code, result.stdout) == (code, ""), result.output
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr
    for piece in pieces:
        assert piece in result.stderr
    return result.stderr


def succeeded(*arguments):
    """Run a command that succeeds."""
    done = feval(*arguments)
    assert done.exit_code == 0, done.output
    return done


def said(*arguments):
    """What a command that succeeds prints to standard output."""
    return succeeded(*arguments).stdout


def told(*arguments):
    """What a command that succeeds prints with --json."""
    return json.loads(said(*arguments, "--json"))
