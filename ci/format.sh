#!/usr/bin/env bash
# Fails where gofmt would change a file.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$ROOT"
wrong=$(find . \( -path ./.git -o -path ./.venv -o -path ./build \) -prune -o -name '*.go' -print0 | xargs -0 "$(go env GOROOT)/bin/gofmt" -l)
if [ -n "$wrong" ]; then
    printf 'not formatted, run gofmt -w on:\n%s\n' "$wrong"
    exit 1
fi
echo "gofmt: all files formatted"
