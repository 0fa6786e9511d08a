#!/usr/bin/env bash
# Starts and stops an engine on this machine, bound to loopback.
#
#   engine.sh start ENGINE [--workers]   the last line of output is the Beam options to use;
#                                        processes that already run are kept
#   engine.sh stop ENGINE                stops all its processes
#   engine.sh status ENGINE              exit code 0 if it runs
#
# ENGINE: flink-2.2, flink-1.20 (job manager, task manager with two slots), spark (master, worker
# with two cores), or prism (one binary, which Beam starts for each job).
# --workers: run Python workers in separate processes, not in threads of the command.
#
# Set in the environment, with defaults:
#   RECORDMILL_CACHE=~/.cache/recordmill   downloads; safe to delete
#   RECORDMILL_RUN=$RECORDMILL_CACHE/run   logs and process ids
#   PYTHON=.venv/bin/python                a Python with recordmill installed
#   SLOTS=2                                task slots, or cores
#   ENGINE_MEMORY=1g                       memory of the task manager, or of Spark's executors
#   ENGINE_RETRIES=3                       retries of a failed task
#   ENGINE_PORT                            port of the engine: 18081 for Flink, 17077 for Spark
#   WORKER_PORT=15000                      port of the worker pool
# Ports up to 4 above ENGINE_PORT are used as well.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=versions
. "$here/versions"
cache=${RECORDMILL_CACHE:-$HOME/.cache/recordmill}
python=${PYTHON:-$here/../../.venv/bin/python}
slots=${SLOTS:-2}
memory=${ENGINE_MEMORY:-1g}
retries=${ENGINE_RETRIES:-3}
worker_port=${WORKER_PORT:-15000}
wait_seconds=90

say() { echo "engine.sh: $*" >&2; }

fail() { # WHAT
    say "$*"
    exit 1
}

usage() {
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}" >&2
    exit 2
}

needs() { # COMMAND PACKAGE
    command -v "$1" >/dev/null 2>&1 || fail "this needs $1; install it (on Debian: apt-get install $2)"
}

# --- downloads: each goes to a temporary folder that is renamed when it is complete ---

made() { # FOLDER MAKER ARGS…: makes the folder in the cache unless it exists; prints its path
    local folder=$cache/$1
    if [ ! -e "$folder/.whole" ]; then
        mkdir -p "$cache"
        (flock 9 && get "$@") 9>"$folder.lock" || exit 1
    fi
    echo "$folder"
}

get() { # FOLDER MAKER ARGS…; another process may have made it while this one waited for the lock
    local folder=$cache/$1 partial=$cache/$1.partial
    shift
    if [ ! -e "$folder/.whole" ]; then
        say "getting $(basename "$folder") into $cache"
        rm -rf "$folder" "$partial"
        mkdir -p "$partial"
        (cd "$partial" && "$@") >&2 || {
            rm -rf "$partial"
            fail "could not get $(basename "$folder"); see the error above"
        }
        touch "$partial/.whole"
        mv "$partial" "$folder"
    fi
}

make_pip() { # the packages of the engines need an old setuptools to build
    "$python" -m venv tools
    tools/bin/python -m pip install --quiet 'setuptools<80' wheel
}

source_of() { # REQUIREMENT: downloads a source package into this folder
    local tools
    tools=$(made pip make_pip)
    "$tools/tools/bin/python" -m pip download --quiet --no-deps --no-build-isolation \
        --no-binary :all: "$1"
}

make_flink() { # VERSION: scripts and libraries are in two packages
    local any=(--platform manylinux2014_x86_64 --implementation cp --python-version 3.11 --abi cp311)
    "$python" -m pip download --quiet --no-deps --only-binary :all: "${any[@]}" "apache-flink==$1"
    "$python" -m zipfile -e apache_flink-*.whl wheel
    mv wheel/pyflink/bin wheel/pyflink/conf .
    source_of "apache-flink-libraries==$1"
    tar -xzf apache_flink_libraries-*.tar.gz --strip-components=2 --wildcards '*/deps/lib' \
        '*/deps/plugins' '*/deps/bin'
    chmod +x bin/*.sh
    rm -rf wheel apache_flink*
}

make_spark() { # VERSION
    source_of "pyspark==$1"
    tar -xzf pyspark-*.tar.gz --strip-components=2 --wildcards '*/deps/bin' '*/deps/jars'
    chmod +x bin/*
    rm -f pyspark-*
}

make_prism() {
    needs go golang
    GOBIN=$PWD go install "github.com/apache/beam/sdks/v2/go/cmd/prism@v$PRISM"
}

make_published_job_server() { # TARGET, as in flink:1.20
    "$python" - "$1" <<'PYTHON'
import shutil, sys
from apache_beam.utils.subprocess_server import JavaJarServer as jars

target = f":runners:{sys.argv[1]}:job-server:shadowJar"
shutil.copy(jars.local_jar(jars.path_to_beam_jar(target), "download"), "job-server.jar")
shutil.rmtree("download")
PYTHON
}

make_job_server() { # RUNNER MAIN_CLASS JARS: a jar that refers to the runner's and the engine's jars
    needs mvn maven
    flock "$cache/maven.lock" mvn -B -q -f "$here/runner.pom.xml" -Drunner="$1" -Dbeam="$RUNNER" \
        dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$PWD/lib"
    rm -f lib/flink-*.jar # the jars of the engine replace them
    "$python" "$here/job_server_jar.py" job-server.jar "$2" "lib" "$3"
}

job_server() { # TARGET RUNNER MAIN_CLASS JARS: prints the jar
    local published=job-server-${1//:/-} parts
    parts=runner-${1//:/-}-$RUNNER-$(cksum <"$here/runner.pom.xml" | cut -d' ' -f1)
    if [ -e "$cache/$published/.whole" ] || { [ ! -e "$cache/$parts/.whole" ] &&
        (made "$published" make_published_job_server "$1") >/dev/null 2>&1; }; then
        echo "$cache/$published/job-server.jar"
    elif [ -z "$2" ]; then
        fail "Maven has no Beam job server for $1;" \
            "if you have the jar, copy it to $cache/$published/job-server.jar and create a file .whole beside it"
    else
        echo "$(made "$parts" make_job_server "$2" "$3" "$4")/job-server.jar"
    fi
}

# --- processes: each has a log and a file with its id and start time, because ids are reused ---

born() { ps -o stat=,lstart= -p "$1" 2>/dev/null | sed -n '/^[^Z]/s/^[^ ]* *//p'; } # PID; not of zombies

launch() { # NAME COMMAND…: in a new session, so that it outlives this shell
    local name=$1
    shift
    setsid "$@" >"$run/$name.log" 2>&1 </dev/null &
    echo "$! $(born $!)" >"$run/$name.pid"
}

alive() { # NAME
    local pid birth
    [ -f "$run/$1.pid" ] && read -r pid birth <"$run/$1.pid" && [ "$(born "$pid" | xargs)" = "$(echo "$birth" | xargs)" ]
}

end() { # NAME: sends SIGTERM, waits, then kills the process and its children
    local pid _
    if alive "$1"; then
        read -r pid _ <"$run/$1.pid"
        kill -TERM "$pid" 2>/dev/null || true
        for _ in $(seq 100); do
            alive "$1" || break
            sleep 0.1
        done
        kill -KILL -- "-$pid" 2>/dev/null || true # the rest of its session
    fi
    rm -f "$run/$1.pid"
}

answers() { # URL TEXT: whether the response contains the text
    "$python" - "$1" "$2" <<'PYTHON' 2>/dev/null
import sys, urllib.request

with urllib.request.urlopen(sys.argv[1], timeout=5) as answer:
    sys.exit(sys.argv[2] not in answer.read().decode())
PYTHON
}

await() { # NAMES URL TEXT
    local name end=$((SECONDS + wait_seconds))
    until answers "$2" "$3"; do
        for name in $1; do
            alive "$name" || fail_with_log "$name" "$name has ended"
        done
        [ "$SECONDS" -lt "$end" ] || fail_with_log "$name" "no response within $wait_seconds s"
        sleep 0.5
    done
}

fail_with_log() { # NAME WHAT
    tail -n 20 "$run/$1.log" >&2
    stop
    fail "$2; the end of $run/$1.log is above"
}

is_open() { # PORT
    (: <>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

start_workers() {
    if ! alive workers; then
        launch workers env TF_CPP_MIN_LOG_LEVEL=3 CUDA_VISIBLE_DEVICES=-1 \
            "$python" -m recordmill.pipelines.worker --pool "$worker_port"
        local _
        for _ in $(seq 100); do
            is_open "$worker_port" && return
            alive workers || break
            sleep 0.2
        done
        fail_with_log workers "the worker pool did not start"
    fi
}

workers() { # MILLISECONDS to keep an idle worker, even a dead one: prints the worker options
    if [ "$with_workers" = yes ]; then
        start_workers
        echo "--environment_type=EXTERNAL --environment_config=127.0.0.1:$worker_port" \
            "--environment_cache_millis=$1"
    else
        echo "--environment_type=LOOPBACK"
    fi
}

# --- the engines ---

flink_version() {
    case $engine in
    flink-2.2) echo "$FLINK_2_2" ;;
    *) echo "$FLINK_1_20" ;;
    esac
}

flink_job_server() { # HOME
    local runner=
    [ "$engine" != flink-1.20 ] || runner=$RUNNER_FLINK_1_20
    job_server "flink:${engine#flink-}" "$runner" \
        org.apache.beam.runners.flink.FlinkJobServerDriver "$1/lib"
}

# If Flink itself loads Beam, Python workers live for the whole job; if each job brings its own Beam,
# they end after each stage. This works only with an assembled job server: the published one bundles
# Flink.
link_libraries() { # HOME JAR
    local parts=${2%/*}/lib
    rm -rf "$run/lib"
    mkdir -p "$run/lib"
    ln -s "$1"/lib/*.jar "$run/lib"
    [ ! -d "$parts" ] || ln -s "$parts"/*.jar "$run/lib"
}

configure_flink() { # HOME
    mkdir -p "$run/conf" "$run/tmp"
    cp "$1"/conf/log4j*.properties "$run/conf/"
    "$python" "$here/flink_config.py" "$1/conf/config.yaml" "$run/conf/config.yaml" \
        port="$port" slots="$slots" memory="$memory" retries="$retries" tmp="$run/tmp"
}

start_flink() {
    local home jar pool
    [ "$engine" = flink-1.20 ] || flink_job_server none >/dev/null # fails before Flink is downloaded
    home=$(made "flink-$(flink_version)" make_flink "$(flink_version)")
    jar=$(flink_job_server "$home")
    export FLINK_CONF_DIR=$run/conf FLINK_LOG_DIR=$run FLINK_LIB_DIR=$run/lib
    if ! alive jobmanager; then
        stop
        configure_flink "$home"
        link_libraries "$home" "$jar"
        launch jobmanager "$home/bin/jobmanager.sh" start-foreground
    fi
    alive taskmanager || launch taskmanager "$home/bin/taskmanager.sh" start-foreground
    await "jobmanager taskmanager" "http://127.0.0.1:$port/overview" "\"slots-total\":$slots"
    pool=$(workers 5000) # before `echo`, which would hide its failure
    echo "--runner=FlinkRunner --flink_version=${engine#flink-} --flink_job_server_jar=$jar" \
        "--flink_master=127.0.0.1:$port --parallelism=$slots $pool"
}

start_spark() {
    local home jar pool version=$SPARK
    jar=$cache/job-server-spark-3/job-server.jar
    [ ! -e "$jar" ] || version=$(unzip -p "$jar" spark-version-info.properties | sed -n 's/^version=//p')
    home=$(made "spark-$version" make_spark "$version")
    jar=$(job_server spark:3 "$RUNNER_SPARK" org.apache.beam.runners.spark.SparkJobServerDriver \
        "$home/jars")
    export SPARK_HOME=$home SPARK_LOCAL_IP=127.0.0.1 SPARK_DAEMON_MEMORY=512m SPARK_CONF_DIR=$run
    if ! alive master; then
        stop
        launch master "$home/bin/spark-class" org.apache.spark.deploy.master.Master \
            --host 127.0.0.1 --port "$port" --webui-port $((port + 1))
        await master "http://127.0.0.1:$((port + 1))/json/" '"status" : "ALIVE"'
    fi
    if ! alive worker; then
        launch worker "$home/bin/spark-class" org.apache.spark.deploy.worker.Worker \
            "spark://127.0.0.1:$port" --host 127.0.0.1 --cores "$slots" --memory "$memory" \
            --webui-port $((port + 2)) -d "$run/work"
    fi
    await "master worker" "http://127.0.0.1:$((port + 1))/json/" '"aliveworkers" : 1'
    pool=$(workers 0)
    # Spark's Guava is too old for Beam: executors use that of the job server. A published job server
    # bundles a relocated Guava.
    echo "--runner=SparkRunner --spark_master_url=spark://127.0.0.1:$port" \
        "--job_server_jvm_property=-Dspark.executor.extraClassPath=$(echo "${jar%/*}"/lib/guava-*.jar)" \
        "--spark_job_server_jar=$jar --job_server_jvm_property=-Dspark.executor.memory=$memory" \
        "--job_server_jvm_property=-Dspark.default.parallelism=$slots" \
        "--job_server_jvm_property=-Dspark.task.maxFailures=$((retries + 1)) $pool"
}

start_prism() {
    local home
    [ "$with_workers" = no ] || fail "--workers: not supported with Prism, which runs Python in the command. Remove the flag."
    home=$(made "prism-$PRISM" make_prism)
    echo "--runner=PrismRunner --prism_location=$home/prism --environment_type=LOOPBACK"
}

start() {
    [ -x "$python" ] || fail "$python: no such Python. Run ./run_local.sh once, or set PYTHON."
    [ "$family" = prism ] || needs java default-jre-headless
    mkdir -p "$run"
    "start_$family"
}

stop() { # in reverse order of start, so that no process loses one that it depends on
    local name
    for name in workers taskmanager jobmanager worker master; do
        end "$name"
    done
}

status() {
    local name found=1
    for name in jobmanager taskmanager master worker workers; do
        if alive "$name"; then
            echo "$name runs: process $(cut -d' ' -f1 "$run/$name.pid"), log $run/$name.log"
            found=0
        fi
    done
    [ "$family" != prism ] || found=0
    return "$found"
}

[ $# -ge 2 ] || usage
action=$1 engine=$2 with_workers=no
[ "${3:-}" != --workers ] || with_workers=yes
case $engine in
flink-2.2 | flink-1.20) family=flink port=${ENGINE_PORT:-18081} ;;
spark) family=spark port=${ENGINE_PORT:-17077} ;;
prism) family=prism port=0 ;;
*) usage ;;
esac
run=${RECORDMILL_RUN:-$cache/run}/$engine
case $action in
start | stop | status) "$action" ;;
*) usage ;;
esac
