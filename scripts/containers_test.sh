#!/usr/bin/env bash
# Builds the images of deploy/docker from programs that are built already, and runs server, worker and client as containers:
# without root, without capabilities and with a read-only file system. BIN is the folder of the programs, and WORK keeps the
# base image and the layers for the next run. It is skipped, visibly and with exit code 77, where tools are missing.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
bin=${BIN:-$root/build/release/bin}
work=${WORK:-$root/build/containers}
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
base=localhost/debian-base:12
# What this machine may not permit to raise: containers ask for more by default.
limits=(--ulimit nofile=20000:20000 --ulimit nproc=8192:8192)

skip() {
  echo "SKIPPED: $*" >&2
  exit 77
}
say() { printf '== %s\n' "$*"; }
fail() {
  echo "FAILED: $*" >&2
  exit 1
}

[ "$(id -u)" = 0 ] || skip "containers_test.sh makes images, which needs root here"
for tool in mmdebstrap buildah podman runc; do
  command -v "$tool" > /dev/null || skip "there is no $tool; apt-get install mmdebstrap buildah podman runc"
done
for program in trainyard trainyard-fetch trainyard-server trainyard-worker trainyard-supervisor trainyard-trainer \
  trainyard-program trainyard-enter trainyard-stack; do
  [ -x "$bin/$program" ] || fail "there is no $program in $bin; build it first"
done
mkdir -p "$work"
work=$(cd "$work" && pwd)
store=(--root "$work/storage" --runroot "$work/run")
pod() { podman "${store[@]}" --runtime runc "$@"; }

mark=trainyard-test-$$
cleanup() {
  local status=$?
  trap - EXIT
  if [ "$status" != 0 ]; then
    for name in server worker; do pod logs --tail 20 "$mark-$name" 2>&1 | sed "s/^/$name: /" >&2 || true; done
  fi
  pod rm -f -t 5 "$mark-server" "$mark-worker" "$mark-client" > /dev/null 2>&1 || true
  pod volume rm -f "$mark-server" "$mark-worker" "$mark-socket" > /dev/null 2>&1 || true
  exit "$status"
}
trap cleanup EXIT

# within SECONDS COMMAND... waits until the command succeeds.
within() {
  local end=$((SECONDS + $1))
  shift
  until "$@" > /dev/null 2>&1; do
    [ "$SECONDS" -lt "$end" ] || fail "this did not become true in time: $*"
    read -r -t 0.3 < <(:) || true
  done
}

if ! pod image exists "$base"; then
  say "base image from $mirror"
  # As in the slim images of Debian, nobody reads manuals in a container.
  mmdebstrap --quiet --variant=minbase --include=ca-certificates \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --customize-hook='rm -rf "$1"/var/lib/apt/lists/*' \
    bookworm "$work/base.tar" "$mirror" || skip "Debian's mirror $mirror gives no base image"
  pod import "$work/base.tar" "$base" > /dev/null
  rm "$work/base.tar"
fi

context=$work/context
rm -rf "$context"
mkdir -p "$context/scripts" "$context/deploy" "$context/dist"
cp "$root/scripts/install_deps.sh" "$context/scripts/"
cp -r "$root/deploy/docker" "$context/deploy/"
find "$bin" -maxdepth 1 -type f -name 'trainyard*' -perm -u+x ! -name '*-cuda' -exec cp -t "$context/dist" {} +
for image in server worker client; do
  say "image trainyard-$image"
  (cd "$context" && buildah "${store[@]}" bud --quiet --format docker --layers --runtime runc --network host \
    "${limits[@]}" --build-arg BASE="$base" --build-arg BINARIES=dist \
    -f "deploy/docker/$image.Containerfile" -t "localhost/trainyard-$image" . > "$work/$image.log" 2>&1) || {
    tail -20 "$work/$image.log" >&2
    fail "trainyard-$image cannot be built; the whole log is $work/$image.log"
  }
done
pod images --format '{{.Repository}} {{.Size}}' | sort

strict=(--read-only --read-only-tmpfs=false --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges --network none
  "${limits[@]}" -v "$mark-socket:/run/trainyard")
for volume in server worker socket; do pod volume create "$mark-$volume" > /dev/null; done
start_server() { pod run -d --health-interval disable --name "$mark-server" "${strict[@]}" -v "$mark-server:/var/lib/trainyard" localhost/trainyard-server > /dev/null; }
start_worker() {
  pod run -d --health-interval disable --name "$mark-worker" "${strict[@]}" -v "$mark-worker:/var/lib/trainyard" localhost/trainyard-worker \
    --log_format json --state_dir /var/lib/trainyard/worker --run_as anyone --drain_on_stop 30s \
    --server unix:/run/trainyard/trainyard.sock --name box --cpu_devices 1 > /dev/null
}
client() { pod run --rm --name "$mark-client" "${strict[@]}" -v "$root/jobs:/jobs:ro" localhost/trainyard-client "$@"; }
ask() { pod exec "$mark-server" trainyard "$@"; }
job() { ask show "$1" -o json | python3 -c "
import json, sys
job = json.load(sys.stdin)
job = job[0] if isinstance(job, list) else job
print(eval(sys.argv[1], {'job': job}))" "$2"; }
is() { [ "$(job "$1" "$2")" = True ]; }

# Whoever has no systemd has no timers for health checks, and the test asks for them itself.
say "server and worker become healthy"
start_server
within 60 pod healthcheck run "$mark-server"
start_worker
within 60 pod healthcheck run "$mark-worker"
for name in server worker; do
  [ "$(pod exec "$mark-$name" id -u)" = 10001 ] || fail "the $name does not run as user 10001"
  if pod exec "$mark-$name" touch /usr/bin/x 2> /dev/null; then fail "the file system of the $name is not read-only"; fi
  pod exec "$mark-$name" grep -q '^CapEff:[[:space:]]*0000000000000000$' /proc/self/status || fail "the $name has capabilities"
done

say "a job from a client's container runs to its end"
client submit /jobs/mlp-glyphs.yaml --set train.epochs=2 --follow > "$work/follow.log" 2>&1 || {
  tail -20 "$work/follow.log" >&2
  fail "the job did not succeed"
}
is last "job['state'].endswith('SUCCEEDED')" || fail "the job is not SUCCEEDED"

say "the server's container is replaced in the middle of a job"
client submit /jobs/mlp-glyphs.yaml --set train.epochs=60 > /dev/null
moving() { is last "int(job.get('progress', {}).get('step', 0)) > $1"; }
within 60 moving 50
pod rm -f -t 20 "$mark-server" > /dev/null
start_server
within 60 pod healthcheck run "$mark-server"
before=$(job last "int(job.get('progress', {}).get('step', 0))")
within 60 moving "$before"
is last "int(job.get('attempt_count', 1)) == 1" || fail "the job was started again"

say "a worker that is stopped gives its job back with a checkpoint"
pod stop -t 60 "$mark-worker" > /dev/null
pod logs "$mark-worker" 2>&1 | grep -q 'the worker is empty' || fail "the worker ended before it was empty"
is last "job['state'].endswith('QUEUED')" || fail "the job was not queued again"
left=$(ask checkpoints ls last -o json | python3 -c "
import json, sys
rows = json.load(sys.stdin)
print(max(int(row['step']) for row in rows))")
reached=$(job last "int(job.get('progress', {}).get('step', 0))")
echo "step $reached when it was stopped, step $left in the last checkpoint"
[ "$left" -ge "$reached" ] || fail "steps were lost: the last checkpoint is of step $left, and the job had reached $reached"
pod rm "$mark-worker" > /dev/null
start_worker
within 60 moving "$left"
ask cancel last > /dev/null
say "containers: all is well"
