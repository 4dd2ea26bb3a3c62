#!/usr/bin/env bash
# Runs Go tests where there is an RDMA adapter: rdma.sh STAGE ARGUMENTS of go test. They are built here and run in the
# guest of ci/rdma-vm.sh, one package after another; with RDMA_GUESTS=2 in two guests (ci/rdma-pair.sh). Where none can
# be had, the stage has one test, which is skipped: ci.rdma-vm.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$ROOT"
stage=$1
shift
mkdir -p "$RECORDS"
rc=0
said=$(ci/rdma-vm.sh --prepare 2>&1 >/dev/null) || rc=$?
if [ $rc -eq 126 ]; then
    echo "skipped: $said"
    python3 - "$said" >"$RECORDS/$stage.jsonl" <<'PY'
import json, sys
test = {"Package": "ci", "Test": "rdma-vm"}
print(json.dumps({"Action": "output", "Output": sys.argv[1], **test}))
print(json.dumps({"Action": "skip", **test}))
PY
    exit 0
elif [ $rc -ne 0 ]; then
    echo "$said" >&2
    exit $rc
fi
vm=rdma-vm.sh
[ "${RDMA_GUESTS:-1}" = 1 ] || vm=rdma-pair.sh
CGO_ENABLED=0 python3 ci/gotest.py "$stage" -exec "'$ROOT/ci/$vm'" -p 1 -count=1 "$@"
