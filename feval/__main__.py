"""`python -m feval`: the command line."""

from feval.cli import main

main()
