#!/usr/bin/env bash
# Runs every generator and fails when that changes a file. It compares file against file rather than with
# git, so that it tells the truth in a tree with uncommitted work too.
set -euo pipefail

sums() { git ls-files -co --exclude-standard -z | xargs -0 -r sha256sum 2>/dev/null || true; }

packages=$(git ls-files -co --exclude-standard -- '*.go' | xargs -r grep -lE '^//go:generate ' 2>/dev/null | xargs -r -n 1 dirname | sort -u || true)
[ -n "$packages" ] || { echo "no generators"; exit 0; }

before=$(sums)
for package in $packages; do
  echo "generate $package"
  (cd "$package" && go generate .)
done
after=$(sums)
changed=$(diff <(echo "$before") <(echo "$after") | awk '/^[<>]/ {print $3}' | sort -u || true)
[ -z "$changed" ] || {
  printf 'these were not what their generators make; they have been made anew, look at them and commit them:\n%s\n' "$changed" >&2
  exit 1
}
