#!/usr/bin/env bash
# Builds tests for linux/arm64 without cgo and runs them under qemu-user: arm64.sh [PACKAGE...]. What they show is that
# the arm64 code (assembly, layouts, system calls) is right; they show nothing about memory ordering, which is the
# host's (transport/shm/PROTOCOL.md). They run on one processor: qemu lets an atomic load pass an atomic store before
# it, which no arm64 processor does, and then wake-ups are lost.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$ROOT"
qemu=${QEMU:-$(command -v qemu-aarch64-static || command -v qemu-aarch64 || true)}
if [ -z "$qemu" ]; then
    echo "test-arm64: neither qemu-aarch64-static nor qemu-aarch64 is on PATH, so nothing was run;" \
        "apt-get install -y qemu-user-static, or QEMU=path" >&2
    exit 2
fi
[ $# -gt 0 ] || set -- internal/park internal/mem ccl/kernel transport/ring transport/inproc transport/shm transport/tcp \
    ccl/exec/p2p ccl/exec
processor=$(sed -nE 's/^Cpus_allowed_list:[[:space:]]*([0-9]+).*/\1/p' /proc/self/status)
out=$ROOT/build/arm64
mkdir -p "$out"
echo "$("$qemu" --version | head -n 1), on processor $processor; memory ordering is not tested by this"
failed=()
for package; do
    test=$out/$(echo "$package" | tr / _).test
    GOOS=linux GOARCH=arm64 CGO_ENABLED=0 go test -c -o "$test" "./$package"
    skip=$(awk -v package="$package" '$1 == package { printf "%s%s", separator, $2; separator = "|" }' \
        ci/arm64_skips.txt)
    start=$SECONDS
    if (cd "$package" && taskset -c "$processor" "$qemu" "$test" -test.short -test.timeout=8m \
        ${skip:+-test.skip="$skip"}) >"$test.log" 2>&1; then
        echo "ok    $package ($((SECONDS - start)) s)"
    else
        failed+=("$package")
        cat "$test.log"
        echo "FAIL  $package ($((SECONDS - start)) s)"
    fi
    awk -v package="$package" \
        '$1 == package { test = $2; sub(/^[^#]*# */, ""); print "      not run: " test ": " $0 }' ci/arm64_skips.txt
done
[ ${#failed[@]} -eq 0 ] || { echo "test-arm64: failed: ${failed[*]}"; exit 1; }
