#!/usr/bin/env bash
# Makes the Debian packages, looks at what is in them, and runs a job with the programs as they would be installed:
# packages_test.sh BUILD. It is skipped, visibly, where Debian's tools for packages are missing.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$1
skip() { echo "SKIPPED: $1"; exit 77; }
for tool in dpkg-buildpackage dh; do
  command -v "$tool" >/dev/null || skip "$tool is missing (apt install dpkg-dev debhelper)"
done
work=$(mktemp -d)
state=$work/state
stop() {
  if [ -x "$work/root/usr/bin/trainyard" ]; then
    "$work/root/usr/bin/trainyard" down --cancel --state-dir "$state" >/dev/null 2>&1 || true
  fi
  rm -rf "$work"
}
trap stop EXIT
fail() { echo "FAILED: $1" >&2; exit 1; }

# Nobody keeps these, so time is not spent on compressing them.
export DPKG_DEB_COMPRESSOR_TYPE=none
"$root/scripts/package.sh" --version 0.0.1 "$build" "$work/one" >/dev/null
packages=(trainyard trainyard-server trainyard-worker python3-trainyard)
mkdir "$work/root"
for package in "${packages[@]}"; do
  file=("$work/one/${package}_0.0.1_"*.deb)
  [ -f "${file[0]}" ] || fail "there is no package $package"
  dpkg-deb -x "${file[0]}" "$work/root"
done

has() { [ -s "$work/root/$1" ] || fail "no package has /$1"; }
for path in usr/bin/trainyard{,-server,-worker} usr/libexec/trainyard/trainyard-{fetch,supervisor,trainer,program,enter} \
    lib/systemd/system/trainyard-{server,worker,jobs,backup,continuous-backup}.service lib/systemd/system/trainyard-{backup.timer,server.socket} \
    usr/lib/sysusers.d/trainyard-server.conf usr/lib/tmpfiles.d/trainyard-{server,worker}.conf \
    etc/trainyard/{server,worker}.yaml usr/share/man/man1/trainyard{,-submit,-admin}.1.gz \
    usr/share/man/man8/trainyard-{server,worker}.8.gz usr/share/bash-completion/completions/trainyard \
    usr/share/zsh/vendor-completions/_trainyard usr/share/fish/vendor_completions.d/trainyard.fish \
    usr/lib/python3/dist-packages/trainyard/__init__.py usr/share/doc/trainyard/examples/mlp-glyphs.yaml; do
  has "$path"
done
for file in "$work"/one/*.deb; do
  scripts=$(dpkg-deb --ctrl-tarfile "$file" | tar t)
  case $(basename "$file") in
    trainyard-server_*) grep -q postinst <<< "$scripts" || fail "nothing makes the user of the server" ;;
  esac
  rm -rf "$work/control"
  dpkg-deb -e "$file" "$work/control"
  if [ -e "$work/control/preinst" ]; then ! grep -q 'systemd-invoke stop' "$work/control/preinst" || fail "an upgrade to $file stops something"; fi
  ! dpkg-deb -c "$file" | grep -q "$build" || fail "$file has a path of the folder of the build"
done
zcat "$work/root/usr/share/man/man8/trainyard-server.8.gz" | grep -q '^\.SH .*BACKUP' || fail "the page of the server has no verbs"
if command -v man >/dev/null; then
  man --warnings -l "$work/root/usr/share/man/man1/trainyard-submit.1.gz" > "$work/man.out" 2> "$work/man.err"
  [ ! -s "$work/man.err" ] || fail "man says: $(cat "$work/man.err")"
fi
if command -v systemd-analyze >/dev/null; then
  # The programs of the units do not lie there on this machine, so a copy names others.
  mkdir "$work/units"
  for unit in "$work"/root/lib/systemd/system/trainyard-*; do
    sed 's,/usr/bin/trainyard[a-z-]*,/bin/true,' "$unit" > "$work/units/$(basename "$unit")"
  done
  said=$(systemd-analyze verify --man=no "$work"/units/*.service "$work"/units/*.timer 2>&1 | grep "$work\|trainyard" || true)
  [ -z "$said" ] || fail "systemd says: $said"
fi

# A program finds the others where they are installed. No other trainyard of this machine is used.
trainyard() { "$work/root/usr/bin/trainyard" "$@"; }
trainyard up --detach --state-dir "$state" --cpu-devices 1 >"$work/up.out" 2>&1 || fail "$(cat "$work/up.out")"
export TRAINYARD_SERVER=unix:$state/server/server.sock
trainyard submit "$work/root/usr/share/doc/trainyard/examples/mlp-glyphs.yaml" --set devices=1 --set train.epochs=1 \
  --follow > "$work/job.out" 2>&1 || fail "$(cat "$work/job.out")"
grep -q 'SUCCEEDED\|succeeded' "$work/job.out" || fail "$(cat "$work/job.out")"
trainyard run --devices 1 -- true > "$work/run.out" 2>&1 || fail "$(cat "$work/run.out")"
PYTHONPATH=$work/root/usr/lib/python3/dist-packages python3 -c 'import importlib.metadata, trainyard; trainyard.in_job(); importlib.metadata.version("trainyard")' || fail "no module for Python"

# The bill of materials names what is linked, what is compiled in, and what is in the page.
"$root/scripts/sbom.py" "$build" "$work"/one/*.deb > "$work/sbom.json"
python3 - "$work/sbom.json" <<'P' || fail "the bill of materials is not right"
import json, sys
document = json.load(open(sys.argv[1]))
names = {package["name"] for package in document["packages"]}
assert {"trainyard-server", "libssl3", "libsqlite3-0", "nlohmann-json3-dev", "preact"} <= names, names
ids = {package["SPDXID"] for package in document["packages"]} | {"SPDXRef-DOCUMENT"}
assert len(ids) == len(document["packages"]) + 1
for one in document["relationships"]:
    assert {one["spdxElementId"], one["relatedSpdxElement"]} <= ids, one
P

# The same build gives the same bytes.
"$root/scripts/package.sh" --version 0.0.1 "$build" "$work/two" >/dev/null
for file in "$work"/one/*.deb; do
  cmp -s "$file" "$work/two/$(basename "$file")" || fail "$(basename "$file") differs when it is made again"
done
echo "OK: ${#packages[@]} packages"
