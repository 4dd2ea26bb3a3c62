#!/usr/bin/env bash
# Compares what the stable packages (docs/go-packages.md) export with the last tagged release. What is gone or changed
# needs a line in CHANGELOG.md that names the package; before 1.0 it needs no more, after it a new major version.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$ROOT"
tool=golang.org/x/exp/cmd/apidiff@v0.0.0-20250620022241-b7579e27df2b
tag=$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null) || { echo "no release is tagged yet: nothing to compare with"; exit 0; }
old=$(mktemp -d)
trap 'git worktree remove --force "$old/tree" 2>/dev/null; rm -rf "$old"' EXIT
git worktree add -q --detach "$old/tree" "$tag"
bad=0
for package in $(sed -nE 's/^\| \[`([a-z/]+)`\].*/\1/p; s/.*, \[`([a-z/]+)`\].*/\1/p' docs/go-packages.md); do
    [ -d "$old/tree/$package" ] || { echo "$package: new since $tag"; continue; }
    (cd "$old/tree" && go run "$tool" -w "$old/export" "./$package")
    changes=$(go run "$tool" -incompatible "$old/export" "./$package")
    [ -n "$changes" ] || continue
    printf '%s, since %s:\n%s\n' "$package" "$tag" "$changes"
    if ! git diff "$tag" -- CHANGELOG.md | grep -qE "^\+.*\`$package\`"; then
        echo "CHANGELOG.md says nothing of \`$package\` since $tag"
        bad=1
    fi
done
exit $bad
