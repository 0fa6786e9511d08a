from __future__ import annotations

import threading

import pytest

from recordmill.pipelines.run.commit import committing, giving_up
from recordmill.schemas.errors import RunError


def test_a_run_that_gave_up_does_not_publish() -> None:
    with giving_up("gave up"):
        pass
    with pytest.raises(RunError, match="was interrupted"), committing("gave up"):
        pytest.fail("it published")
    with committing("another"):
        pass


def test_giving_up_waits_for_what_is_published() -> None:
    order = []

    def give_up() -> None:
        with giving_up("published"):
            order.append("gave up")

    thread = threading.Thread(target=give_up)
    with committing("published"):
        thread.start()
        thread.join(0.05)
        order.append("published")
    thread.join()
    assert order == ["published", "gave up"]
