#!/usr/bin/env bash
# Builds the control plane of Kubernetes 1.20 for `make kubernetes`, from Debian's source package and with Debian's Go. It takes
# some eight minutes of a processor, and 4 GB of disk meanwhile.
#   scripts/build_kubernetes.sh FOLDER     puts the programs into FOLDER/bin
set -euo pipefail
[ $# = 1 ] || { echo "usage: $0 FOLDER" >&2; exit 2; }
mkdir -p "$1/bin"
out=$(cd "$1/bin" && pwd)
programs=(kube-apiserver kube-controller-manager kube-scheduler)
export DEBIAN_FRONTEND=noninteractive
apt-get install -y -qq --no-install-recommends golang-go golang-github-modern-go-reflect2-dev dpkg-dev jq rsync make > /dev/null
sources=$(mktemp -d)
trap 'rm -rf "$sources"' EXIT
cd "$sources"
# The lists of sources are asked for here alone, so that the machine's own configuration stays as it is.
mirror=${DEBIAN_MIRROR:-http://deb.debian.org}
mkdir -p lists/partial cache/archives/partial
{
  echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror/debian bookworm main"
  echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror/debian-security bookworm-security main"
} > sources.list
apt=(-o Dir::Etc::sourcelist="$sources/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists="$sources/lists"
  -o Dir::Cache="$sources/cache" -o APT::Sandbox::User=root)
apt-get "${apt[@]}" update -qq
apt-get "${apt[@]}" source -qq kubernetes > /dev/null
cd kubernetes-1.20*/
# The copy of reflect2 that comes with the source crashes under Go 1.18 and later; Debian's own does not.
cp /usr/share/gocode/src/github.com/modern-go/reflect2/*.go /usr/share/gocode/src/github.com/modern-go/reflect2/*.s \
  vendor/github.com/modern-go/reflect2/
export GOPATH=$PWD/.go CGO_ENABLED=0 HOME=$sources/home GOCACHE=$sources/cache-of-go GOFLAGS=-p=$(nproc)
export KUBE_GIT_VERSION=v1.20.2 KUBE_GIT_MAJOR=1 KUBE_GIT_MINOR=20 KUBE_GIT_TREE_STATE=archive
export KUBE_GIT_COMMIT=faecb196815e248d3ecfb03c680a4507229c2a56
mkdir -p "$HOME"
make WHAT="$(printf 'cmd/%s ' "${programs[@]}")"
for program in "${programs[@]}"; do install -m 755 "_output/bin/$program" "$out/"; done
echo "built ${programs[*]} in $out"
