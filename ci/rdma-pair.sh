#!/usr/bin/env bash
# Runs the same command in two guests of ci/rdma-vm.sh on one wire: rdma-pair.sh CMD [ARG...]. Output and exit status are
# those of the first guest, 192.0.2.1. The second one, 192.0.2.2, serves it and is ended with it; if the first fails,
# what the second has said follows.
set -euo pipefail
vm=$(dirname "${BASH_SOURCE[0]}")/rdma-vm.sh
wire=$(mktemp -d)
second=
end() {
    [ -z "$second" ] || kill "$second" 2>/dev/null || true
    wait
    rm -rf "$wire"
}
trap end EXIT
RDMA_VM_LINK=$wire:2 "$vm" "$@" >"$wire/said" 2>&1 &
second=$!
rc=0
RDMA_VM_LINK=$wire:1 "$vm" "$@" || rc=$?
[ $rc -eq 0 ] || sed 's/^/second guest: /' "$wire/said" >&2
exit $rc
