#!/usr/bin/env bash
# Fuzzes the readers of plan files, a minute each.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$ROOT"
for name in FuzzText FuzzJSON; do
    go test -run '^$' -fuzz "^$name\$" -fuzztime "${1:-60s}" -fuzzminimizetime 1s ./ccl/plan
done
