#!/usr/bin/env bash
# Runs every fuzz test for the given time (default 30s), one package after another on each processor. Each prints what
# it said when it has ended.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$ROOT"
export FUZZ_CORPUS=$(go env GOCACHE)/fuzz/$(go list -m)

# package TIME FOLDER: builds its tests once, and runs its fuzz tests one after another.
package() {
    local binary log name rc failed=0
    binary=$(mktemp)
    log=$(mktemp)
    go test -c -fuzz=. -o "$binary" "./$2"
    for name in $(grep -hoE '^func Fuzz[A-Za-z0-9_]*' "$2"/*_test.go | cut -d' ' -f2); do
        rc=0
        (cd "$2" && "$binary" -test.run='^$' -test.fuzz="^$name\$" -test.fuzztime="$1" -test.fuzzminimizetime=1s \
            -test.parallel=1 -test.fuzzcachedir="$FUZZ_CORPUS/$2") </dev/null >"$log" 2>&1 || rc=$?
        # The end of the time is reported as a failure where it comes within an input.
        if [ $rc -ne 0 ] && grep -q '^ *context deadline exceeded$' "$log" && ! grep -q 'Failing input' "$log"; then
            echo "the time ended within an input: no failure" >>"$log"
            rc=0
        fi
        printf '== %s %s\n%s\n' "$2" "$name" "$(cat "$log")"
        [ $rc -eq 0 ] || failed=$rc
    done
    rm -f "$binary" "$log"
    return $failed
}
export -f package

# xargs goes on after a failure (123), and that is reported at the end.
grep -rlE --include='*_test.go' '^func Fuzz' ccl internal transport pgbackend cabi cmd tests | xargs -n 1 dirname | sort -u |
    xargs -P "$(nproc)" -L 1 bash -c 'set -e; package "$@"' package "${1:-30s}"
