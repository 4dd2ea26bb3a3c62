#!/usr/bin/env bash
# Prints the coverage of the packages that prove and simulate plans; each must reach 90 %.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$ROOT"
go test -count=1 -short -timeout=170s -cover ./ccl/plan ./ccl/algo ./ccl/verify ./ccl/sim | tee build/cover.txt
awk '/coverage:/ { n++; for (i = 1; i <= NF; i++) if ($i == "coverage:") { sub("%", "", $(i+1)); if ($(i+1) < 90) { print $2 " is below 90 %"; bad = 1 } } }
     END { if (n != 4) { print n " packages, want 4"; bad = 1 } exit bad }' build/cover.txt
