"""The command line, called in this process."""

from typer.testing import CliRunner

from feval.cli import app


def call(*arguments, **options):
    """What a command exits with and prints."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments], **options)


def said(*arguments):
    """What a command that succeeds prints to standard output."""
    done = call(*arguments)
    assert done.exit_code == 0, done.output
    return done.stdout
