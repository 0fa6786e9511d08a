#!/usr/bin/env bash
# Sets up .venv/ beside this file if need be, and runs recordmill there.
#
#   ./run_local.sh                     draw sample pictures, convert them, prove the dataset
#   ./run_local.sh test [ARGS…]        run the tests; ARGS go to pytest
#   ./run_local.sh convert|verify|… …  run recordmill with these arguments
#
# Nothing outside this folder is changed. PYTHON=… chooses the Python to set up with.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=$here/.venv/bin

has_uv() { command -v uv >/dev/null 2>&1; }

is_supported() { # PYTHON
    local needed="import sys, venv"
    has_uv || needed+=", ensurepip"
    "$1" -c "$needed; sys.exit(not (3, 10) <= sys.version_info < (3, 14))" 2>/dev/null
}

find_python() {
    local candidate candidates=(python3.13 python3.12 python3.11 python3.10 python3)
    [ -z "${PYTHON:-}" ] || candidates=("$PYTHON")
    for candidate in "${candidates[@]}"; do
        if is_supported "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    echo "run_local.sh: found no Python 3.10 to 3.13 with venv${PYTHON:+ at $PYTHON};" \
        "install one (on Debian also python3-venv), or say where one is: PYTHON=/path/to/python3" >&2
    return 2
}

version_of() { "$1" -c 'import platform; print(platform.python_version())' 2>/dev/null; }

has_venv() { # a whole one, and of the version that $PYTHON asks for, if it asks
    local version
    version=$(version_of "$bin/python") || return 1
    has_uv || [ -e "$bin/pip" ] || return 1
    [ -z "${PYTHON:-}" ] || [ "$version" = "$(version_of "$PYTHON")" ]
}

make_venv() {
    local python
    python=$(find_python)
    echo "setting up .venv/ with Python $(version_of "$python"): takes a few minutes and 3 GB" >&2
    if has_uv; then
        uv venv --quiet --seed --clear --python "$python" .venv
    else
        "$python" -m venv --clear .venv
    fi
}

install() { # EXTRA, as in [test]
    if has_uv; then
        uv pip install --quiet --python "$bin/python" -c constraints.txt -e ".$1"
    else
        "$bin/python" -m pip install --quiet -c constraints.txt -e ".$1"
    fi
}

# Tells one set-up from another: what it was made from, where, and by which Python.
state() { # EXTRA
    echo "$(cat pyproject.toml constraints.txt | cksum) $here $(version_of "$bin/python") $1"
}

is_set_up() { # EXTRA; a set-up for the tests holds all that the program needs
    local stamp
    stamp=$(cat .venv/stamp 2>/dev/null) || return 1
    [ "$stamp" = "$(state "$1")" ] || [ "$stamp" = "$(state "[test]")" ]
}

set_up() ( # EXTRA
    cd "$here"
    has_venv || make_venv
    is_set_up "$1" && return
    echo "installing recordmill$1 into .venv/" >&2
    install "$1" >&2
    state "$1" >.venv/stamp
)

show_rejects() { # DATASET
    cat "$1"/rejects/rejects-*.jsonl | "$bin/python" -c '
import json, sys
for reject in sorted(map(json.loads, sys.stdin), key=lambda reject: reject["source"]):
    print("  {source}  {reason:13}  {detail}".format(**reject))'
}

run_sample() {
    cd "$here"
    local dataset=out/shapes/1.0.0
    "$bin/python" examples/draw_sample.py sample
    "$bin/recordmill" convert --input sample/labels.csv --output out --name shapes \
        --splits train=0.7,validation=0.15,test=0.15 --max_rejects 10 --if_exists replace
    "$bin/recordmill" verify "$dataset" --decode
    printf '\nThe rows that were rejected, all of them meant to be:\n'
    show_rejects "$dataset"
    cat <<EOF

the pictures  $here/sample/labels.csv
the dataset   $here/$dataset
the rejects   $here/$dataset/rejects
the program   $bin/recordmill convert --help
EOF
}

case "${1:-}" in
"")
    set_up ""
    run_sample
    ;;
test)
    set_up "[test]"
    cd "$here"
    exec "$bin/python" -m pytest "${@:2}"
    ;;
*)
    set_up ""
    exec "$bin/recordmill" "$@"
    ;;
esac
