"""The self-contained HTML page of a comparison, a surface or a recording. Its module `page` is
loaded when it is first used, since it needs those of comparisons.
"""

from typing import TYPE_CHECKING

from feval.lazy import lazy_names

if TYPE_CHECKING:
    from feval.report.page import page as page

__getattr__, __dir__ = lazy_names(__name__, {"page": ""})
