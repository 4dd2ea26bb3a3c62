#!/usr/bin/env bash
# Installs the rivals of rivals.txt, each into a virtual environment of its own under build/bench/env, and compiles
# rank.c with each. What is there already is left alone. PYTHON names the interpreter. Arguments: the names wanted
# (default: all).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
build=$(cd ../.. && pwd)/build/bench
mkdir -p "$build/env"

install() { # name, requirements...
    local name=$1 env=$build/env/$1 stamp
    shift
    stamp="$* $("${PYTHON:-python3}" -c 'import sys; print(sys.version, sys.prefix)')"
    [ "$(cat "$env/.installed" 2>/dev/null)" = "$stamp" ] && return
    echo "bench: installing $*"
    rm -rf "$env"
    "${PYTHON:-python3}" -m venv "$env"
    "$env/bin/python" -m pip install -q "$@"
    echo "$stamp" >"$env/.installed"
}

# The library is named by its path: pip installs no link libmpi.so, and no search path is needed this way.
compile() { # name
    local env=$build/env/$1 lib
    lib=$(find "$env/lib" -maxdepth 1 \( -name 'libmpi.so.12' -o -name 'libmpi.so.40' \) | head -n 1)
    [ -n "$lib" ] || { echo "bench: $1: no libmpi in $env/lib" >&2; exit 1; }
    "${CC:-cc}" -O2 -Wall -Wextra -I"$env/include" -o "$build/rank-$1" rank.c mpi.c "$lib" -Wl,-rpath,"$env/lib"
}

while read -r name requirements; do
    case "$name" in '' | '#'*) continue ;; esac
    if [ $# -gt 0 ] && ! printf '%s\n' "$@" | grep -qx "$name"; then continue; fi
    # shellcheck disable=SC2086 # requirements are words
    install "$name" $requirements
    [ "$name" = plot ] || compile "$name"
done <rivals.txt
