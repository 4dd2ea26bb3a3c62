#!/usr/bin/env bash
# Makes build/gpu-bundle, and goccl-gpu-VERSION-linux-MACHINE.tar.gz of it: what ci/gpu.sh needs on a machine with a
# GPU, torch and a C++ compiler, but without Go and a network. gpu_bundle.sh [FOLDER]: there instead.
set -euo pipefail
python=${PYTHON:-} # the caller's; with PYTHON_VERSION ci/env.sh has another meaning for it
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$ROOT"
most=$((60 << 20)) # bytes of the archive
out=${1:-$ROOT/build/gpu-bundle}
name=goccl-gpu
folder=$out/$name
archive=$out/$name-$(cat python/goccl/VERSION)-linux-$(uname -m).tar.gz
python=${python:-$VENV/bin/python}
rm -rf "$folder" "$archive"
mkdir -p "$folder"

"$python" setup.py -q build_go --to "$folder/prebuilt"
for package in driver group; do
    CGO_ENABLED=0 go test -c -trimpath -ldflags='-s -w' -o "$folder/prebuilt/$package.test" "./cuda/$package"
done

find setup.py pyproject.toml README.md LICENSE ci/gpu.sh docs/cuda.md cabi/exports/goccl.h python tests/gpu \
    examples tests/cabi/structs.py \
    -type f ! -path '*/__pycache__/*' ! -path '*.egg-info/*' ! -name '*.so' ! -name '_build.py' ! -name 'test_*.py' \
    ! -name conftest.py ! -name '*.go' ! -path 'python/goccl/bin/*' -print0 | xargs -0 cp --parents -t "$folder"

# Nothing tells where it was built.
if grep -rlE -e "$ROOT/(cabi|ccl|cmd|cuda|internal|pgbackend|python|transport)" "$folder"; then
    echo "gpu-bundle: these files have paths of this machine" >&2
    exit 1
fi
# Dates before 1980 cannot be in a wheel.
tar -C "$out" --sort=name --mtime=2020-01-01T00:00:00Z --owner=0 --group=0 --numeric-owner --mode=u+w,go-w \
    -cf - "$name" | gzip -6n >"$archive"
bytes=$(stat -c %s "$archive")
if [ "$bytes" -gt "$most" ]; then
    echo "gpu-bundle: $archive has $bytes bytes, at most $most" >&2
    exit 1
fi
echo "$archive: $(((bytes + 524288) >> 20)) MiB; unpack it on a machine with a GPU, and run $name/ci/gpu.sh"
