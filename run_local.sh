#!/usr/bin/env bash
# Sets up .venv/ beside this file if necessary, and runs recordmill there.
#
#   ./run_local.sh                     draw sample images, convert them, and a table with faults
#   ./run_local.sh test [ARGS…]        run the tests; ARGS go to pytest
#   ./run_local.sh stores [ARGS…]      run the tests on real object stores, installed into a cache
#   ./run_local.sh browser [ARGS…]     test reports in a real Chromium, installed with apt if missing
#   ./run_local.sh packaging [ARGS…]   build and install the package on each installed Python
#   ./run_local.sh deploy [ARGS…]      run the tests of deploy/, which also need node, go and git
#   ./run_local.sh crash [--every_step]  kill, starve and disturb runs at 100 moments, or at every step
#   ./run_local.sh mutations [--mutations N]   verify 10,000 damaged copies of a dataset
#   ./run_local.sh fuzz [FLAGS…]      fuzz every reader, 5,000 runs each; -runs=100000 for more
#   ./run_local.sh engines [ARGS…]     start each real engine, run the tests on it, stop it
#   ./run_local.sh torch [ARGS…]       read a dataset with PyTorch; needs Python 3.10, downloads 0.8 GB
#   ./run_local.sh exports [ARGS…]     convert what other tools write; downloads 1 GB, or 4.4 GB with
#                                      RECORDMILL_TORCHVISION=1, to compare objects with torchvision
#   ./run_local.sh everything          install what all of these need at once
#   ./run_local.sh docs                build the documentation into site/html/; fails at a broken link
#   ./run_local.sh convert|verify|… …  run recordmill with these arguments
#
# Nothing outside this folder is changed; `deploy`, `exports` and `torch` keep what they download in
# RECORDMILL_CACHE, by default ~/.cache/recordmill. PYTHON=… chooses the Python to set up with.
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
        "install one (on Debian also python3-venv), or set PYTHON=/path/to/python3" >&2
    return 2
}

run_pytest() { # EXTRA ARGS…
    set_up "$1"
    cd "$here"
    # Without it, each of the hundreds of processes of the tests would compile recordmill again.
    unset PYTHONDONTWRITEBYTECODE
    exec "$bin/python" -m pytest "${@:2}"
}

# One test process per core, up to four: each takes 1 GB.
readonly in_parallel=(-n logical --maxprocesses 4)

version_of() { "$1" -c 'import platform; print(platform.python_version())' 2>/dev/null; }

has_venv() { # complete, and of the version of $PYTHON if that is set
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

# The state of a set-up: its requirements, folder, Python version and extra.
state() { # EXTRA
    echo "$(cat pyproject.toml constraints.txt | cksum) $here $(version_of "$bin/python") $1"
}

readonly everything="[browser,docs,fuzz,packaging,stores]"

is_set_up() { # EXTRA; a set-up for the tests includes the requirements of the program
    local state_file
    state_file=$(cat .venv/state_file 2>/dev/null) || return 1
    case "$state_file" in
    "$(state "$1")" | "$(state "$everything")") ;;
    "$(state "[browser]")" | "$(state "[stores]")" | "$(state "[fuzz]")" | "$(state "[packaging]")")
        [ "$1" = "" ] || [ "$1" = "[test]" ]
        ;;
    "$(state "[test]")") [ "$1" = "" ] ;;
    *) return 1 ;;
    esac
}

set_up() ( # EXTRA
    cd "$here"
    has_venv || make_venv
    is_set_up "$1" && return
    echo "installing recordmill$1 into .venv/" >&2
    install "$1" >&2
    state "$1" >.venv/state_file
)

run_sample() {
    cd "$here"
    local options=(--output out --if_exists replace) dataset=out/shapes/1.0.0
    "$bin/python" examples/draw_sample.py sample
    echo '1. Convert a table of images:'
    "$bin/recordmill" convert --input sample/clean.csv --name shapes "${options[@]}" \
        --splits train=0.7,validation=0.15,test=0.15 --split_method exact
    "$bin/recordmill" inspect "$dataset" -n 24 --sheet out/shapes.png >/dev/null
    printf '\n2. Convert a table with a fault of each kind, on purpose; up to 10 rejects are allowed:\n'
    "$bin/recordmill" convert --input sample/labels.csv --name faulty --max_rejects 10 "${options[@]}"
    cat <<EOF

the report    $here/$dataset/report.html
some images   $here/out/shapes.png
the program   $bin/recordmill convert --help
EOF
}

has_chromium() { [ -n "${CHROMIUM:-}" ] || command -v chromium google-chrome >/dev/null; }

has_shells() { command -v zsh >/dev/null && command -v fish >/dev/null; }

install_shells() { # tests of shells that are missing are skipped
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
        apt-get update -qq >&2
        DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends zsh fish >&2
    fi
}

install_chromium() {
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
        echo "run_local.sh: found no Chromium; install one, or set CHROMIUM=…" >&2
        return 2
    fi
    apt-get update -qq >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends \
        chromium fonts-dejavu-core >&2
}

case "${1:-}" in
"")
    set_up ""
    run_sample
    ;;
stores)
    run_pytest "[stores]" tests/stores "${in_parallel[@]}" --dist loadfile "${@:2}"
    ;;
test)
    run_pytest "[test]" "${in_parallel[@]}" --dist worksteal "${@:2}"
    ;;
browser)
    has_chromium || install_chromium
    run_pytest "[browser]" tests/browser "${@:2}"
    ;;
packaging)
    has_shells || install_shells
    run_pytest "[packaging]" tests/packaging "${in_parallel[@]}" --dist loadgroup "${@:2}"
    ;;
deploy)
    run_pytest "[test]" tests/deploy "${in_parallel[@]}" --dist loadfile "${@:2}"
    ;;
crash)
    run_pytest "[test]" tests/crash "${in_parallel[@]}" --dist worksteal "${@:2}"
    ;;
fuzz)
    set_up "[fuzz]"
    cd "$here"
    "$bin/python" -m pytest -q tests/fuzz
    exec "$bin/python" -m tests.fuzz all -runs=5000 -seed=1 -print_final_stats=1 "${@:2}"
    ;;
mutations)
    run_pytest "[test]" -s tests/mutations "${@:2}"
    ;;
torch)
    set_up ""
    cd "$here"
    "$bin/python" examples/draw_sample.py sample
    "$bin/recordmill" convert --input sample/labels.csv --output out --name torch --no_report \
        --splits train=0.7,validation=0.15,test=0.15 --max_rejects 10 --if_exists replace
    "$bin/recordmill" schema out/torch/1.0.0 --json >out/torch/schema.json
    exec tests/torch/run out/torch/1.0.0 out/torch/schema.json \
        "${RECORDMILL_CACHE:-$HOME/.cache/recordmill}/torch" "${@:2}"
    ;;
exports)
    run_pytest "[test]" tests/exports "${in_parallel[@]}" --dist loadfile "${@:2}"
    ;;
everything)
    set_up "$everything"
    ;;
docs)
    set_up "[docs]"
    cd "$here"
    exec "$bin/python" -m sphinx -q -W --keep-going -n docs site/html
    ;;
engines) # takes half an hour on two cores, and downloads 1 GB the first time
    run_pytest "[stores]" tests/engines --timeout 900 "${in_parallel[@]}" --dist loadgroup "${@:2}"
    ;;
*)
    set_up ""
    exec "$bin/recordmill" "$@"
    ;;
esac
