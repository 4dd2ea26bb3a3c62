#!/usr/bin/env bash
# Runs every fuzz test for the given time (default 30s), one after another on each processor. Each prints what it said
# when it has ended.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$ROOT"

# one TIME FOLDER NAME: runs one of them.
one() {
    local log rc=0
    log=$(mktemp)
    go test -run '^$' -fuzz "^$3\$" -fuzztime "$1" -fuzzminimizetime 1s -parallel 1 "./$2" </dev/null >"$log" 2>&1 || rc=$?
    # go test reports the end of the time as a failure where it comes within an input.
    if [ $rc -ne 0 ] && grep -q '^ *context deadline exceeded$' "$log" && ! grep -q 'Failing input' "$log"; then
        echo "the time ended within an input: no failure" >>"$log"
        rc=0
    fi
    printf '== %s %s\n%s\n' "$2" "$3" "$(cat "$log")"
    rm -f "$log"
    return $rc
}
export -f one

# xargs goes on after a failure (123), and that is reported at the end.
grep -rE --include='*_test.go' -o '^func Fuzz[A-Za-z0-9_]*' ccl internal transport pgbackend cabi cmd tests |
    sed -E 's|/[^/]*:func | |' | sort |
    xargs -P "$(nproc)" -L 1 bash -c 'one "$@"' one "${1:-30s}"
