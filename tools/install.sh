#!/usr/bin/env bash
# install.sh PACKAGE...: Debian packages that are missing, and only those, so that a prepared machine needs
# neither network nor root for it. Elsewhere it names what is needed and goes on: tests say what they miss.
set -euo pipefail

if ! command -v dpkg-query >/dev/null; then
  echo "not a Debian machine: see that these are installed: $*" >&2
  exit 0
fi
missing=()
for package in "$@"; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
[ "${#missing[@]}" -gt 0 ] || exit 0

as=()
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || { echo "install these first, as root: apt-get install ${missing[*]}" >&2; exit 1; }
  as=(sudo)
fi
echo "installing ${missing[*]}"
"${as[@]}" apt-get update -qq
"${as[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
