#!/usr/bin/env bash
# fuzz.sh TIME MODULE...: runs every fuzz target of the modules for TIME each. go test fuzzes one target of
# one package at a time, so this lists them and walks the list.
set -euo pipefail
time=$1
shift
failed=0
for module in "$@"; do
  cd "$module"
  for dir in $(go list -f '{{.Dir}}' ./...); do
    for target in $(cat "$dir"/*_test.go 2>/dev/null | grep -oE '^func Fuzz[A-Za-z0-9_]+' | cut -d' ' -f2); do
      echo "fuzz $target in $dir for $time"
      go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$dir" || failed=1
    done
  done
  cd "$OLDPWD"
done
exit "$failed"
