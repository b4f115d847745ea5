"""The command line, run in this process."""

from typer.testing import CliRunner

from feval.cli import app


def feval(*arguments):
    """Run a command: texts are split into words, all else, such as paths, is one word."""
    return CliRunner().invoke(app, words(arguments), prog_name="feval")


def words(arguments):
    """The words of a command line."""
    return [
        word
        for each in arguments
        for word in (each.split() if isinstance(each, str) else [str(each)])
    ]
