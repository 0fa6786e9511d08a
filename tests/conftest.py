"""Settings of property tests: no deadlines, because machines may be slow, and fixed seeds in CI."""

from __future__ import annotations

import os

try:
    from hypothesis import settings
except ImportError:  # the environment of tests/torch has none, and no property test
    pass
else:
    settings.register_profile("default", deadline=None, derandomize="CI" in os.environ)
    settings.load_profile("default")
