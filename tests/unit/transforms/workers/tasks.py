"""Tasks of the tests of the sandbox: a child imports this module, so it imports little."""

from __future__ import annotations

import ctypes
import logging
import os
import time
import warnings

LONG = 120.0


def doubled(number):
    return 2 * number


def process_id():
    return os.getpid()


def overrun(path):
    path.write_text(str(os.getpid()))
    time.sleep(LONG)


def hang_in_native_code():
    ctypes.CDLL(None).sleep(int(LONG))


def complain():
    warnings.warn("an odd image", stacklevel=1)
    logging.getLogger("PIL").error("an odd image")


def abort():
    os.abort()


def segmentation_fault():
    ctypes.string_at(0)


def exit_with_3():
    os._exit(3)


def hog():
    return len(bytearray(8 * 2**30))


def hog_slowly():
    held = []
    while True:
        held.append(bytes(2**27))


def raise_(error):
    raise error


def raise_an_unpicklable_error():
    class Local(Exception):
        pass

    raise Local("here only")
