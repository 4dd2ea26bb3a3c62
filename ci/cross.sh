#!/usr/bin/env bash
# Everything below cabi builds without cgo, tests included, on the platforms that CI has no machine of.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$ROOT"
for platform in linux/arm64 darwin/arm64; do
    GOOS=${platform%/*} GOARCH=${platform#*/} CGO_ENABLED=0 go build -pgo=off ./...
    GOOS=${platform%/*} GOARCH=${platform#*/} CGO_ENABLED=0 go vet -pgo=off ./...
    echo "$platform: builds, vet has nothing to say"
done
