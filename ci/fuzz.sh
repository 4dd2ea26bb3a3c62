#!/usr/bin/env bash
# Runs every fuzz test for the given time (default 30s), one after another.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$ROOT"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
grep -rE --include='*_test.go' -o '^func Fuzz[A-Za-z0-9_]*' ccl transport pgbackend cabi cmd tests |
    sed -E 's|/[^/]*:func |\t|' | sort |
    while read -r folder name; do
        echo "== $folder $name"
        if ! go test -run '^$' -fuzz "^$name\$" -fuzztime "${1:-30s}" -fuzzminimizetime 1s "./$folder" </dev/null 2>&1 | tee "$log"; then
            # go test reports the end of the time as a failure where it comes within an input.
            if grep -q '^ *context deadline exceeded$' "$log" && ! grep -q 'Failing input' "$log"; then
                echo "the time ended within an input: no failure"
            else
                exit 1
            fi
        fi
    done
