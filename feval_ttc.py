"""`feval.compat.feval_ttc` under the name that the paper's listings and the reference package's scripts import."""

from feval.compat.feval_ttc import *  # noqa: F403  its `__all__` is what there is
