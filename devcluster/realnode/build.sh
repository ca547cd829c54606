#!/bin/sh
# build.sh DIR: builds what a real node runs into DIR, and installs the two parts that are not Go modules.
set -eu
output=$1
case $output in /*) ;; *) output=$PWD/$output ;; esac
cd "$(dirname "$0")/.."
mkdir -p "$output"

missing=
command -v runc >/dev/null || missing="$missing runc"
command -v iptables >/dev/null || missing="$missing iptables"
[ -x /usr/lib/cni/bridge ] || missing="$missing containernetworking-plugins"
if [ -n "$missing" ]; then
  [ "$(id -u)" = 0 ] || { echo "missing:$missing; install them, or run this as root" >&2; exit 1; }
  echo "installing$missing"
  apt-get update -qq
  # shellcheck disable=SC2086 # a list of package names
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
fi

./build.sh "$output/kubelet" k8s.io/kubernetes/cmd/kubelet
./build.sh "$output/kube-proxy" k8s.io/kubernetes/cmd/kube-proxy
export GOWORK=off CGO_ENABLED=0
go build -trimpath -buildvcs=false -ldflags "-s -w" -o "$output/pause" ./realnode/pause
cd ../tools/containerd
echo "building containerd: about a minute the first time"
for program in containerd containerd-shim-runc-v2 ctr; do
  go build -trimpath -buildvcs=false -ldflags "-s -w" -o "$output/$program" "github.com/containerd/containerd/v2/cmd/$program"
done
