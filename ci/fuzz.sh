#!/usr/bin/env bash
# Runs every fuzz test for the given time (default 30s), one after another.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$ROOT"
grep -rE --include='*_test.go' -o '^func Fuzz[A-Za-z0-9_]*' ccl transport pgbackend cabi cmd tests |
    sed -E 's|/[^/]*:func |\t|' | sort |
    while read -r folder name; do
        echo "== $folder $name"
        go test -run '^$' -fuzz "^$name\$" -fuzztime "${1:-30s}" -fuzzminimizetime 1s "./$folder" </dev/null
    done
