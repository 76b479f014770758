"""How the documentation is built: `make docs`."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import labelgap

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
runpy.run_path(str(HERE / "gallery" / "build.py"))["build"](HERE / "gallery" / "pages")

project = "labelgap"
author = "the labelgap authors"
version = release = labelgap.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "docstrings",
    "generated",
]
exclude_patterns = ["_build", "_ext", "gallery/README.md"]
highlight_language = "none"
nitpicky = True
# Types in docstrings are words such as "float, default=1.0"; only full names of ours must lead somewhere.
nitpick_ignore_regex = [("py:.*", r"(?!labelgap\.).*")]

myst_heading_anchors = 3

autosummary_generate = False
autodoc_typehints = "none"
napoleon_google_docstring = False
napoleon_use_ivar = True
strip_signature_backslash = True  # napoleon then keeps the underscore of fitted attributes
napoleon_use_rtype = False

html_theme = "furo"
html_title = f"labelgap {release}"
html_static_path = ["_static"]
html_css_files = ["style.css"]
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
