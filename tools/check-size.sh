#!/usr/bin/env bash
# check-size.sh WARN FAIL: names Go files above WARN lines and fails above FAIL. Generated files are exempt.
# A long file is usually two concepts, and a reader finds concepts by file.
set -euo pipefail
warn=$1 fail=$2 bad=0
while read -r file; do
  [ -f "$file" ] || continue
  lines=$(wc -l <"$file")
  [ "$lines" -gt "$warn" ] || continue
  ! head -n 20 "$file" | grep -qE '^// Code generated .* DO NOT EDIT\.$' || continue
  if [ "$lines" -gt "$fail" ]; then
    echo "$file: $lines lines, more than $fail: split it by concept" >&2
    bad=1
  else
    echo "$file: $lines lines, more than $warn" >&2
  fi
done < <(git ls-files -co --exclude-standard -- '*.go')
exit "$bad"
