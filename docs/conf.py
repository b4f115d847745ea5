"""The documentation site: `sh docs/build.sh` makes it from these pages, the docstrings and the
commands.
"""

from __future__ import annotations

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS.parent), str(DOCS / "extensions")]

import feval  # noqa: E402  found by the line above

project = "feval"
author = "The feval developers"
release = version = feval.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "docstrings",
    "commands",
    "repository",
    "notebook_pages",
    "redirects",
    "excerpts",
]
exclude_patterns = ["extensions"]

myst_heading_anchors = 4
default_role = "py:obj"

autodoc_typehints_format = "short"
autodoc_type_aliases = {
    name: name
    for name in ("Bools", "Complex", "Floats", "Int16", "Int64", "Integers", "Rows", "UInt64")
}
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "exclude-members": "model_config,model_post_init"}
napoleon_custom_sections = [("Attributes", "params_style")]
napoleon_use_rtype = False
python_maximum_signature_line_length = 100
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"feval {version}"
html_static_path = ["static"]
templates_path = ["templates"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
