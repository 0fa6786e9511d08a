"""Importing recordmill changes nothing outside it: not Beam, Pillow, boto3 or the interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

PREAMBLE = """
import json, pkgutil, sys
from importlib import import_module
import recordmill
names = [m.name for m in pkgutil.walk_packages(recordmill.__path__, "recordmill.")]
LIBRARIES = ("PIL", "apache_beam", "boto3", "botocore", "grpc", "pyarrow", "urllib3")
STANDARD = ("builtins", "gc", "logging", "multiprocessing", "os", "signal", "sys", "threading",
            "traceback", "warnings")
def is_watched(name):
    return name.partition(".")[0] in LIBRARIES + STANDARD
"""
LIST = """
for name in names:
    import_module(name)
print(json.dumps([name for name in sys.modules if not name.startswith("recordmill")]))
"""
COMPARE = """
def attempt(name):
    try:
        return import_module(name)
    except Exception:
        return None
import gc, logging, multiprocessing.forkserver, os, signal, threading, warnings
loaded = [attempt(name) for name in json.loads(sys.stdin.read())]
loaded = [module for module in loaded if module and is_watched(module.__name__)]
MODULE = type(sys)
def content(value):
    return list(value.items()) if isinstance(value, dict) else list(value)
def state():
    # Values are held by what is returned, so that no id is used again.
    found = {}
    for module in loaded:
        for name, value in list(vars(module).items()):
            if isinstance(value, MODULE) or name.startswith("__"):
                continue
            found[module.__name__, name] = value
            if isinstance(value, type) and is_watched(value.__module__):
                members = vars(value).items()
                found.update({(module.__name__, name, key): v for key, v in members
                              if not key.startswith(("_abc_", "__"))})
    containers = {(*key, "content"): content(value) for key, value in found.items()
                  if type(value) in (dict, list, set) and key[0] not in CACHES}
    root = logging.getLogger()
    return found, containers, {
        "environment": dict(os.environ), "path": list(sys.path), "gc": gc.isenabled(),
        "root": (root.level, list(root.handlers), list(root.filters), logging.root.disabled),
        "signals": [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)],
        "fork server": list(multiprocessing.forkserver._forkserver._preload_modules),
    }
# Where modules note what they have seen: never a setting.
CACHES = {"sys", "os", "gc", "builtins"}
from apache_beam.coders import registry
coders = dict(registry._coders)
before = state()
for name in names:
    import_module(name)
after = state()
changed = []
for old, new in zip(before[:2], after[:2]):
    for key in {**old, **new}:
        same = old.get(key) is new.get(key) if old is before[0] else old.get(key) == new.get(key)
        if not same:
            changed.append(".".join(key))
changed += [name for name in before[2] if before[2][name] != after[2][name]]
ours = sorted(kind.__name__ for kind in registry._coders.keys() - coders.keys())
print(json.dumps([changed, ours]))
"""


def python(code: str, given: str = "") -> list[list[str]]:
    command = [sys.executable, "-c", PREAMBLE + code]
    # Those that `worker_imports` sets before it loads TensorFlow, in the process of a pool.
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    ended = subprocess.run(
        command, input=given, capture_output=True, text=True, cwd=ROOT, env=environment
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    found: list[list[str]] = json.loads(ended.stdout.splitlines()[-1])
    return found


def test_importing_a_module_changes_nothing_else() -> None:
    """Third-party modules are imported first, and may have side effects.

    Registering coders of our own types with Beam is allowed.
    """
    modules = json.dumps(python(LIST))
    changed, coders = python(COMPARE, modules)
    assert changed == []
    batches = ["OrderedRefs", "RefBatch", "Row", "RowBatch", "VerificationBatch"]
    assert coders == ["EncodedRefs", "ImageRef", *batches]
