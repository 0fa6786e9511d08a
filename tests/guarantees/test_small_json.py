"""No JSON of up to 1 MB takes more than 300 MB: each kind is read in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

READ = """
import io, resource, sys
from recordmill.schemas.errors import UsageError
from recordmill.schemas.tables import Projection, Part, TableFile
from recordmill.transforms.functional.sources import coco, json_lines
n = 1_000_000
data = eval(sys.argv[1], {"n": n})[:n]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for reader, kind in ((coco, "coco"), (json_lines, "jsonl")):
    file = TableFile("t", kind)
    def stream():
        return io.BufferedReader(io.BytesIO(data))
    try:
        reader.probe(stream(), file)
    except UsageError:
        pass
    for row in reader.read(stream(), Part(file), Projection(None, "image")):
        pass
next(coco._names_in(stream(), "images"), None)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""

DOCUMENTS = {
    "brackets": r"""b'{"images":' + b'['*(n//2 - 9) + b']'*(n//2 - 9) + b'}'""",
    "open": r"""b'{"images":' + b'['*n""",
    "objects": r"""b'{"a":'*n""",
    "empty objects": r"""b'{"images":[' + b'{},'*(n//3 - 9) + b'{}]}'""",
    "digits": r"""b'{"images":[{"id":' + b'9'*(n - 30) + b'}]}'""",
    "fraction": r"""b'{"images":[{"id":0.' + b'9'*(n - 30) + b'}]}'""",
    "text": r"""b'{"images":[{"file_name":"' + b'x'*(n - 40) + b'"}]}'""",
    "escapes": r"""b'{"images":[{"file_name":"' + b'\\\\'*(n//2 - 20) + b'"}]}'""",
    "keys": r"""b'{' + b','.join(b'"%d":[]' % i for i in range(n//11)) + b'}'""",
    "equal keys": r"""b'{"images":[{' + b','.join([b'"a":1'] * (n//7)) + b'}]}'""",
}


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_small_documents_are_read_in_bounded_memory(kind: str) -> None:
    command = (sys.executable, "-c", READ, DOCUMENTS[kind])
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert int(ended.stdout) < 300
