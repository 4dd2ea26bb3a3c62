#!/usr/bin/env bash
# Runs every fuzz test for the given time (default 30s), one after another.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$ROOT"
for package in $(go list ./...); do
    for name in $(go test -list '^Fuzz' "$package" | grep '^Fuzz' || true); do
        echo "== $package $name"
        go test -run '^$' -fuzz "^$name\$" -fuzztime "${1:-30s}" "$package"
    done
done
