#!/usr/bin/env bash
# Installs what is missing to build and test Trainyard on Debian 12. Does nothing, fast, where all is there.
#   scripts/install_deps.sh           what is needed
#   scripts/install_deps.sh --lint    also clang-tidy, for make lint
#   scripts/install_deps.sh --fuzz    also clang with libFuzzer, for make fuzz
#   scripts/install_deps.sh --browser also Chromium and Node, for make browser
#   scripts/install_deps.sh --deploy  also podman, etcd and others, for make containers and make kubernetes
#   scripts/install_deps.sh --s3      also a Ceph with radosgw, for make s3
#   scripts/install_deps.sh --slurm   also a Slurm, for the tests labelled slurm
#   scripts/install_deps.sh --peers   also what is only compared against (PyTorch and torchvision, about 600 MB)
set -euo pipefail

packages=(
  g++ cmake ninja-build ccache make git ca-certificates python3
  libgrpc++-dev protobuf-compiler protobuf-compiler-grpc libprotobuf-dev libprotoc-dev libabsl-dev
  libsqlite3-dev libboost1.81-dev libdnnl-dev libgloo-dev libyaml-cpp-dev nlohmann-json3-dev libcli11-dev
  libspdlog-dev zlib1g-dev libzstd-dev libjpeg62-turbo-dev libxxhash-dev libarchive-dev libgit2-dev libssl-dev libcurl4-openssl-dev libpugixml-dev prometheus-cpp-dev prometheus libdw-dev libre2-dev libgtest-dev libgmock-dev
  iproute2 openssh-client openssh-server patch clang-format bubblewrap
  python3-pip python3-setuptools python3-wheel python3-yaml python3-optuna dpkg-dev debhelper
)
if [ "${1:-}" = "--peers" ]; then
  packages+=(python3-torch python3-torchvision python3-numpy python3-pil libopenblas0-pthread libopenblas0-openmp zstd)
elif [ "${1:-}" = "--browser" ]; then
  packages+=(chromium)
  # A Node from elsewhere serves as well, and Debian's npm cannot be installed beside it.
  command -v node >/dev/null && command -v npm >/dev/null || packages+=(nodejs npm)
elif [ "${1:-}" = "--deploy" ]; then
  packages+=(mmdebstrap buildah podman runc etcd-server openssl tini)
elif [ "${1:-}" = "--s3" ]; then
  packages+=(radosgw ceph-mon ceph-osd ceph-common curl iproute2 python3-botocore)
elif [ "${1:-}" = "--slurm" ]; then
  packages+=(slurmctld slurmd slurm-client munge)
elif [ "${1:-}" = "--lint" ]; then
  packages+=(clang-tidy)
elif [ "${1:-}" = "--fuzz" ]; then
  packages+=(clang libclang-rt-14-dev)
elif [ $# -gt 0 ]; then
  echo "usage: $0 [--browser | --lint | --fuzz | --deploy | --s3 | --slurm | --peers]" >&2
  exit 2
fi

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$' || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  exit 0
fi

sudo=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "install_deps.sh: these packages are missing and need root to install: ${missing[*]}" >&2
    exit 1
  fi
  sudo=(sudo)
fi
echo "installing: ${missing[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
"${sudo[@]}" apt-get update -qq
"${sudo[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
