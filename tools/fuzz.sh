#!/usr/bin/env bash
# fuzz.sh TIME MODULE...: runs every fuzz target of the modules for TIME each. go test fuzzes one target of
# one package at a time, so this lists them and walks the list.
set -euo pipefail
time=$1
shift
failed=0

# fuzz TARGET TIME PACKAGE: inputs that are merely interesting are not made smaller for long, which would take
# most of the time. A worker that is at an input when the time is over makes go test fail with nothing found
# (golang/go issue 75804): that is a run without a finding.
fuzz() {
  local log
  log=$(mktemp)
  if go test -run '^$' -fuzz "^$1\$" -fuzztime "$2" -fuzzminimizetime 1s "$3" 2>&1 | tee "$log"; then rm -f "$log"; return 0; fi
  if grep -q 'context deadline exceeded' "$log" && ! grep -qE 'Failing input written|panic:|seed corpus' "$log"; then
    echo "no finding in $1: the time was over"
    rm -f "$log"
    return 0
  fi
  rm -f "$log"
  return 1
}

for module in "$@"; do
  cd "$module"
  for dir in $(go list -f '{{.Dir}}' ./...); do
    for target in $(cat "$dir"/*_test.go 2>/dev/null | grep -oE '^func Fuzz[A-Za-z0-9_]+' | cut -d' ' -f2); do
      echo "fuzz $target in $dir for $time"
      fuzz "$target" "$time" "$dir" || failed=1
    done
  done
  cd "$OLDPWD"
done
exit "$failed"
