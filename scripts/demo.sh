#!/usr/bin/env bash
# Runs one job from submit to a downloaded checkpoint, on this machine, with the binaries in $BIN.
# DATASETS=DIR trains on the real Fashion-MNIST found there; otherwise on generated glyphs.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${BIN:?the folder of the binaries}
export PATH="$bin:$PATH"

state=$(mktemp -d "${TMPDIR:-/tmp}/trainyard-demo.XXXXXX")
export TRAINYARD_SERVER="unix:$state/server/server.sock"
spec=jobs/convnet-glyphs.yaml
dataset_args=()
if [ -n "${DATASETS:-}" ]; then
  spec=jobs/convnet-fashion-mnist.yaml
  dataset_args=(--dataset-dir "$(realpath "$DATASETS")")
fi

say() { printf '\n\033[1m$ %s\033[0m\n' "$*" | if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then cat; else sed 's/\x1b\[[0-9;]*m//g'; fi; }
run() {
  say "$@"
  "$@"
}
cleanup() {
  local status=$?
  trap - EXIT
  say trainyard down --cancel
  trainyard down --state-dir "$state" --cancel || true
  rm -rf "$state"
  exit $status
}
trap cleanup EXIT

say trainyard up --detach --cpu-devices 2 --threads-per-device 1
trainyard up --detach --state-dir "$state" --cpu-devices 2 --threads-per-device 1 "${dataset_args[@]}"
run trainyard workers ls
run trainyard submit "$spec" --follow
run trainyard show last
run trainyard checkpoints ls last
run trainyard checkpoints get last -O "$state/download"
run trainyard clone last --set optimizer.sgd.lr=0.02 --set train.epochs=1 --yes --follow
run trainyard diff @~1 last
run trainyard ls -a
