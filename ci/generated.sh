#!/usr/bin/env bash
# Runs every generator and fails where that changes a generated file (their names begin with z). The code for devices
# (cuda/kernel) is compiled again as PTX, and compared; make kernels-check does that for all.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$ROOT"
generated() {
    find . \( -path ./.git -o -path './.venv*' -o -path ./build -o -path ./dist \) -prune -o \
        -type f -name 'z*' -print0 |
        LC_ALL=C sort -z | xargs -0r sha256sum
}
mkdir -p build
generated >build/generated.before
go generate ./...
generated >build/generated.after
if ! diff build/generated.before build/generated.after >build/generated.diff; then
    echo "generated files differ from what their generators write now; commit what go generate wrote:"
    sed -nE 's/^[<>] [0-9a-f]+ +//p' build/generated.diff | sort -u
    exit 1
fi
echo "$(wc -l <build/generated.after) generated files, unchanged"
if [ "$(uname -m)" = x86_64 ]; then
    ci/kernels.sh -only=compute_75
else
    echo "the code for devices was not compiled again: its compiler is pinned for x86_64"
fi
