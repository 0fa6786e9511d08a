"""How property tests run: without deadlines, as machines are slow at times; the same in each CI."""

from __future__ import annotations

import os

try:
    from hypothesis import settings
except ImportError:  # the environment of tests/torch has none, and no property test
    pass
else:
    settings.register_profile("default", deadline=None, derandomize="CI" in os.environ)
    settings.load_profile("default")
