"""Sphinx configuration: `./run_local.sh docs` builds the site and fails at a broken link.

The notebook is executed during the build, in a temporary folder.
"""

import os
import sys
from importlib import metadata
from pathlib import Path

os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])

project = "recordmill"
version = release = metadata.version("recordmill")
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
autoclass_content = "both"
autodoc_typehints_format = "short"
napoleon_use_rtype = False
nitpick_ignore_regex = [("py:.*", ".*")]  # types of other libraries have no page on this site
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True
html_theme = "furo"
html_title = f"recordmill {version}"
html_show_copyright = False
suppress_warnings = ["misc.highlighting_failure"]  # of JSON with an ellipsis, and of crontabs
