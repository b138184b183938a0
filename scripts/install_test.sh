#!/usr/bin/env bash
# Installs the packages in a Debian 12 under user-mode Linux, where two users work, the server is killed, the machine reboots
# and the packages are upgraded in the middle of a job, and where all is removed. BUILD is the folder of the build. It is
# skipped, visibly, where something for it is missing.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=${BUILD:-$root/build/release}
work=${WORK:-$root/build/install}
for tool in linux mmdebstrap mke2fs dpkg-buildpackage dh; do
  command -v "$tool" >/dev/null || { echo "SKIPPED: $tool is missing (apt install user-mode-linux mmdebstrap e2fsprogs dpkg-dev debhelper)" >&2; exit 0; }
done
rm -rf "$work/one" "$work/two"
"$root/scripts/package.sh" --version 0.1.0 "$build" "$work/one"
"$root/scripts/package.sh" --version 0.1.0+later "$build" "$work/two" >/dev/null
rm -f "$work"/*/trainyard-worker-cuda_*.deb  # there is no GPU
# There is no network inside, so the root has what the packages depend on.
depends=$(for package in "$work"/one/*.deb; do dpkg-deb -f "$package" Depends; echo ,; done | tr ',' '\n' |
  sed 's/|.*//; s/(.*//; s/[[:space:]]//g' | grep -v -e '^$' -e '^trainyard' | sort -u | paste -sd, -)
status=0
PACKAGES=$depends SECONDS_MAX=${SECONDS_MAX:-900} "$root/tests/isolation/boot.sh" "$work" "$root/tests/install/inside.sh" "$work/one" "$work/two" || status=$?
[ "$status" = 77 ] && exit 0
exit "$status"
