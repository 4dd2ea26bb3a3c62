#!/usr/bin/env bash
# Builds the site of docs/ in build/docs/site: mkdocs in an environment of its own, and the command goccl for what is
# generated. build.sh serve: shows it at http://127.0.0.1:8000, and again after each change. build.sh look: screenshots of
# it, light and dark, and whether its search finds messages (chromium on PATH).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../env.sh"
cd "$ROOT"
venv=$ROOT/build/docs/venv
if [ "$(cat "$venv/made" 2>/dev/null)" != "$(cat ci/docs/requirements.txt)" ]; then
    rm -rf "$venv"
    "$(PATH=$OUTER_PATH command -v "${PYTHON:-python3}")" -m venv "$venv"
    "$venv/bin/python" -m pip install -q -r ci/docs/requirements.txt
    cp ci/docs/requirements.txt "$venv/made"
fi
CGO_ENABLED=0 go build -o build/docs/goccl ./cmd/goccl
export NO_MKDOCS_2_WARNING=1 # no warning of this site
export GOCCL=$ROOT/build/docs/goccl
if [ "${1:-}" = serve ]; then exec "$venv/bin/mkdocs" serve -f ci/docs/mkdocs.yml; fi
"$venv/bin/mkdocs" build --strict --clean -q -f ci/docs/mkdocs.yml
if [ "${1:-}" = look ]; then
    "$venv/bin/python" -m pip install -q playwright==1.65.2
    exec "$venv/bin/python" ci/docs/look.py
fi
echo "build/docs/site: $(find build/docs/site -name '*.html' | wc -l) pages"
