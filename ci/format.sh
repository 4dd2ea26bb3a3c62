#!/usr/bin/env bash
# Fails where gofmt would change a file, and where a file is committed that was built.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$ROOT"
wrong=$(find . \( -path ./.git -o -path './.venv*' -o -path ./build \) -prune -o -name '*.go' -print0 |
    xargs -0 "$(go env GOROOT)/bin/gofmt" -l)
if [ -n "$wrong" ]; then
    printf 'not formatted, run gofmt -w on:\n%s\n' "$wrong"
    exit 1
fi
echo "gofmt: all files formatted"
if [ -e .git ]; then # not in an unpacked archive
    # In numstat, binary files have "-" for lines. The compiler's profile is one that nothing here builds but make
    # profile, and the code for devices one that nothing builds but make kernels.
    built=$(
        git ls-files -ci --exclude-standard
        git diff --numstat "$(git hash-object -t tree /dev/null)" -- ':!*/testdata/*' ':!*/default.pgo' \
            ':!*/zkernels_*.gz' |
            awk '$1 == "-" { print $3 }'
    )
    if [ -n "$built" ]; then
        printf 'ignored or binary, and yet committed; git rm --cached:\n%s\n' "$built"
        exit 1
    fi
    echo "git: nothing committed that was built"
fi
