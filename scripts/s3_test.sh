#!/usr/bin/env bash
# Runs tests/s3 against a real store: the radosgw of Debian, with a Ceph of one monitor and one store in memory. It is skipped,
# visibly and with exit code 77, where Ceph is missing: scripts/install_deps.sh --s3 installs it.
#   BIN    folder of s3_conformance_test, and of the programs, whose backups and checkpoints go to the store and back
#   WORK   folder for what Ceph writes
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
bin=${BIN:-$root/build/release/bin}
work=${WORK:-$root/build/s3}

skip() {
  echo "SKIPPED: $*" >&2
  exit 77
}
for tool in ceph-mon ceph-osd radosgw radosgw-admin ceph curl unshare ip; do
  command -v "$tool" > /dev/null || skip "there is no $tool; scripts/install_deps.sh --s3 installs it"
done
for program in s3_conformance_test trainyard trainyard-{server,worker,supervisor,trainer}; do
  [ -x "$bin/$program" ] || { echo "there is no $program in $bin; build it first" >&2; exit 1; }
done
if [ "${S3_TEST_INSIDE:-}" != 1 ]; then
  [ "$(id -u)" = 0 ] || skip "s3_test.sh makes a network namespace, which needs root here"
  # In a network of its own, all ports are free. In a process namespace of its own, all daemons end with the script.
  S3_TEST_INSIDE=1 exec unshare --net --pid --fork --kill-child --mount-proc bash "$0" "$@"
fi
ip link set lo up

rm -rf "$work/ceph"
mkdir -p "$work/ceph/mon" "$work/ceph/osd"
work=$(cd "$work/ceph" && pwd)
sed "s|@work@|$work|" "$root/tests/s3/ceph.conf" > "$work/ceph.conf"
export CEPH_CONF=$work/ceph.conf
ring=$work/keyring
ceph-authtool --create-keyring "$ring" --gen-key -n mon. --cap mon 'allow *' > /dev/null
ceph-authtool "$ring" --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *' > /dev/null
ceph-authtool "$ring" --gen-key -n osd.0 --cap mon 'allow profile osd' --cap osd 'allow *' > /dev/null
ceph-authtool "$ring" --gen-key -n client.rgw --cap mon 'allow rwx' --cap osd 'allow rwx' > /dev/null
monmaptool --create --addv a '[v2:127.0.0.1:40000,v1:127.0.0.1:40001]' --fsid 777dc1cc-1a37-4fb5-8316-d9f2c836a49f "$work/monmap" > /dev/null

failed() {
  echo "$*; the logs are in $work" >&2
  tail -n 5 "$work"/*.out >&2 || true
  exit 1
}
# Runs a command until it succeeds, for at most a minute.
until_true() {
  local what=$1
  shift
  for _ in $(seq 300); do
    "$@" > "$work/until.out" 2>&1 && return
    sleep 0.2
  done
  failed "$what"
}
ceph-mon --mkfs -i a --monmap "$work/monmap" --keyring "$ring" > "$work/mkfs.out" 2>&1 || failed "ceph-mon makes no store"
ceph-mon -f -i a > "$work/mon.out" 2>&1 &
until_true "the monitor does not answer" timeout 10 ceph osd stat
uuid=9f2b6f0c-9d6b-4d0e-8a4e-4b6c3f0f5a01
ceph osd new "$uuid" 0 > "$work/new.out" 2>&1 || failed "there is no new osd"
ceph-osd -i 0 --mkfs --osd-uuid "$uuid" > "$work/osd_mkfs.out" 2>&1 || failed "ceph-osd makes no store"
ceph-osd -f -i 0 > "$work/osd.out" 2>&1 &
until_true "the osd does not come up" sh -c 'timeout 10 ceph osd stat | grep -q "1 up"'
radosgw -f -n client.rgw > "$work/rgw.out" 2>&1 &
until_true "radosgw does not answer" curl -s -o /dev/null http://127.0.0.1:8280/

export AWS_ACCESS_KEY_ID=AKTRAINYARD AWS_SECRET_ACCESS_KEY=not/a+secret
radosgw-admin -n client.rgw user create --uid test --display-name test --access-key "$AWS_ACCESS_KEY_ID" --secret "$AWS_SECRET_ACCESS_KEY" > "$work/user.out" 2>&1 || failed "there is no user"
export TRAINYARD_S3_ENDPOINT=http://127.0.0.1:8280 TRAINYARD_S3_BUCKET=conformance
empty=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
curl -sS --fail -X PUT --aws-sigv4 aws:amz:us-east-1:s3 --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" -H "x-amz-content-sha256: $empty" \
  "$TRAINYARD_S3_ENDPOINT/$TRAINYARD_S3_BUCKET" > "$work/bucket.out" 2>&1 || failed "the bucket cannot be made"
echo "$(radosgw --version | cut -d' ' -f1-3) answers after ${SECONDS} s"
timeout 300 "$bin/s3_conformance_test" "$@"

# The backup of a running server goes there twice, and comes back as a state directory.
server=$bin/trainyard-server
state=$work/state
"$server" --state_dir "$state" > "$work/server.out" 2>&1 &
server_id=$!
until_true "trainyard-server does not start" test -e "$state/ready"
place=s3://$TRAINYARD_S3_BUCKET/server
for i in 1 2; do
  "$server" --state_dir "$state" backup "$work/snapshots" --keep 1 --bucket "$place" --s3_endpoint "$TRAINYARD_S3_ENDPOINT" > "$work/backup.out" 2>&1 ||
    failed "the backup fails: $(cat "$work/backup.out")"
  cat "$work/backup.out"
  grep -q "$place: version $i," "$work/backup.out" || failed "backup says nothing of version $i"
done
# The unit of the timer gives an empty place if there is no bucket.
"$server" --state_dir "$state" backup "$work/local" --bucket "" > "$work/local.out" 2>&1 || failed "the backup without a bucket fails"
if grep -q s3:// "$work/local.out"; then failed "a backup without a bucket goes to one"; fi
kill "$server_id"
wait "$server_id" || failed "trainyard-server ends with $?"
"$server" fetch "$place" "$work/fetched" --s3_endpoint "$TRAINYARD_S3_ENDPOINT"
"$server" --state_dir "$work/restored" restore "$work"/fetched/*Z
"$server" check "$work/restored" || failed "what came back is damaged"
if AWS_SECRET_ACCESS_KEY=wrong "$server" fetch "$place" "$work/other" --s3_endpoint "$TRAINYARD_S3_ENDPOINT" 2> "$work/denied.out"; then
  failed "a wrong key is accepted"
fi
grep -q "the secret key is not that of the key id" "$work/denied.out" || failed "a wrong key is not named: $(cat "$work/denied.out")"

# A job trains on one server, whose checkpoints go to the store, and goes on from there on another one.
cat > "$work/job.yaml" <<'EOF'
name: travels
model: {convnet: {channels: [8, 16]}}
data: {dataset: glyphs, train_size: 500, test_size: 100}
train: {steps: 30, global_batch: 50, seed: 3}
optimizer: {sgd: {lr: 0.05}}
checkpoint: {every: 10 steps, keep: {last: 1}}
devices: 1
EOF
yard() {
  local name=$1
  shift
  "$server" --state_dir "$work/$name" --s3_endpoint "$TRAINYARD_S3_ENDPOINT" "$@" > "$work/$name.out" 2>&1 &
  yard_server=$!
  until_true "the server $name does not start" test -e "$work/$name/ready"
  # Only the server has the keys.
  env -u AWS_ACCESS_KEY_ID -u AWS_SECRET_ACCESS_KEY "$bin/trainyard-worker" --server "unix:$work/$name/server.sock" \
    --state_dir "$work/$name-worker" --name "$name" --cpu_devices 1 > "$work/$name-worker.out" 2>&1 &
  yard_worker=$!
  client=("$bin/trainyard" --server "unix:$work/$name/server.sock")
}
yard first --checkpoint_bucket "s3://$TRAINYARD_S3_BUCKET/first"
timeout 120 "${client[@]}" run "$work/job.yaml" > "$work/run.out" 2>&1 ||
  failed "the job fails: $(tail -n 3 "$work/run.out")"
copy=s3://$TRAINYARD_S3_BUCKET/first/checkpoints/1/30
copied() { "${client[@]}" checkpoints ls 1 | grep -q "$copy"; }
until_true "the checkpoint does not come to the store" copied
"${client[@]}" checkpoints ls 1
kill "$yard_worker" "$yard_server"
wait "$yard_worker" "$yard_server" || true
yard second --checkpoint_sources "s3://$TRAINYARD_S3_BUCKET/first"
place=s3://$TRAINYARD_S3_BUCKET/server/checkpoints/1
if "${client[@]}" run "$work/job.yaml" --from "$place" 2> "$work/refused.out"; then
  failed "a place that is not allowed is read"
fi
grep -q "takes no checkpoints from" "$work/refused.out" || failed "the place is not named: $(cat "$work/refused.out")"
place=s3://$TRAINYARD_S3_BUCKET/first/checkpoints/1
timeout 120 "${client[@]}" run "$work/job.yaml" --from "$place" --set train.steps=40 > "$work/run.out" 2>&1 ||
  failed "the job does not go on: $(tail -n 3 "$work/run.out")"
"${client[@]}" show 2 -o json | grep -q '"jobs/1/checkpoints/30"' || failed "the job does not start from the checkpoint"
kill "$yard_worker" "$yard_server"
wait "$yard_worker" "$yard_server" || true
echo "s3_test.sh: all is well"
