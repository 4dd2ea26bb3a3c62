#!/usr/bin/env bash
# Each package that makes, proves, compiles and simulates plans must be covered to 90 % by its own tests. The figures
# are those of test-go.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$ROOT"
record=$RECORDS/test-go.jsonl
[ -f "$record" ] || { echo "test-cover: there is no $record; make test-go writes it" >&2; exit 2; }
sed -nE 's#.*"Package":"[^"]*/(ccl/(plan|algo|verify|sim|program))","Output":"coverage: ([0-9.]+)% of statements.*#\1 \3#p' \
    "$record" |
    awk '{ n++; print $1 ": " $2 " %" }
        $2 < 90 { print $1 " is below 90 %"; bad = 1 }
        END { if (n != 5) { print n + 0 " packages, want 5"; bad = 1 } exit bad }'
