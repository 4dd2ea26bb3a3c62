#!/usr/bin/env bash
# Runs what only a machine with a GPU can show, and writes one report: gpu.sh [FOLDER], where report.txt, report.json
# and the logs go (build/gpu). It works here and in an unpacked archive of make gpu-bundle, which needs torch (2.11 or
# newer) and a C++ compiler, but neither Go nor a network. PYTHON names the interpreter that has torch.
# docs/cuda.md describes the report.
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
out=${1:-$ROOT/build/gpu}

nothing() {
    echo "ci/gpu.sh: $1" >&2
    echo "no GPU, nothing run"
    exit 0
}
compgen -G '/dev/nvidia[0-9]*' >/dev/null || command -v nvidia-smi >/dev/null ||
    nothing "there is no /dev/nvidia0, and no nvidia-smi on PATH"
if [ -z "${PYTHON:-}" ]; then
    PYTHON=$ROOT/.venv/bin/python
    [ -x "$PYTHON" ] || PYTHON=python3
fi
if ! said=$("$PYTHON" -c 'import torch' 2>&1); then
    echo "ci/gpu.sh: there may be a GPU, but $PYTHON cannot import torch (${said##*$'\n'});" \
        "PYTHON=… names another one" >&2
    exit 1
fi
"$PYTHON" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null ||
    nothing "torch finds no GPU that it can use ($("$PYTHON" -c 'import torch; print(torch.__version__)'))"

if [ ! -d "$ROOT/prebuilt" ]; then # not in a bundle
    PYTHON=$PYTHON "$ROOT/ci/gpu_bundle.sh"
    ROOT=$ROOT/build/gpu-bundle/goccl-gpu
fi
exec "$PYTHON" "$ROOT/tests/gpu/run.py" --out "$out"
