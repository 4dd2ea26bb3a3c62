#!/usr/bin/env bash
# Runs cuda/kernel/gen with the compiler that it needs, which comes into build/nvrtc: kernels.sh [-always | -check | -only=TARGETS].
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$ROOT"
pins=ci/requirements-nvrtc.txt
into=build/nvrtc/$(sha256sum <"$pins" | cut -c1-16)
if [ ! -e "$into/complete" ]; then
    python=$VENV/bin/python
    [ -x "$python" ] || python=${PYTHON:-python3}
    rm -rf build/nvrtc
    "$python" -m pip install -q --root-user-action=ignore --disable-pip-version-check --target "$into" --no-deps --only-binary :all: \
        --require-hashes -r "$pins"
    touch "$into/complete"
fi
start=$(date +%s)
go run ./cuda/kernel/gen -dir cuda/kernel -nvrtc "$into/nvidia/cuda_nvrtc/lib/libnvrtc.so.12" "$@"
bytes=$(cat cuda/kernel/zkernels_*.gz | wc -c)
echo "kernels $*: $(ls cuda/kernel/zkernels_*.gz | wc -l) images, $bytes bytes ($(($(date +%s) - start)) s)"
