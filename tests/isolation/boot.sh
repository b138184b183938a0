#!/usr/bin/env bash
# Boots a Debian 12 with systemd and control groups of version 2 under user-mode Linux, runs one script in it as root,
# prints what that prints, and returns its exit status; 77 if it cannot start here.
# usage: boot.sh DIR SCRIPT [FILE...]     the FILEs lie in /inside/ there, and SCRIPT is /inside/run
# SCRIPT runs again after a reboot, for which it asks with the exit status 88. PACKAGES names further packages of Debian.
# DIR keeps the root file system for the next run. It needs user-mode-linux, mmdebstrap, e2fsprogs and a C compiler, and
# root. There is one processor, no GPU, and no network but loopback.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=$1 script=$(realpath "$2"); shift 2
files=(); for file in "$@"; do files+=("$(realpath "$file")"); done
packages=systemd,systemd-sysv,dbus,procps,python3-minimal,bubblewrap,passwd,libabsl20220623,libgrpc++1.51,libprotobuf32,libre2-9,libsqlite3-0,libssl3,openssl,libxxhash0,libyaml-cpp0.7${PACKAGES:+,$PACKAGES}
skip() { echo "SKIPPED: $1" >&2; exit 77; }
for tool in linux mmdebstrap mke2fs cc; do
  command -v "$tool" >/dev/null || skip "$tool is missing (apt install user-mode-linux mmdebstrap e2fsprogs gcc)"
done
[ "$(id -u)" = 0 ] || skip "only root can make the root file system"

mkdir -p "$dir"; cd "$dir"
if [ "$(cat root/packages 2>/dev/null)" != "$packages" ]; then
  rm -rf root; mmdebstrap --quiet --variant=minbase --include="$packages" bookworm root || skip "no Debian archive can be reached"
  echo "$packages" > root/packages
  mkdir -p root/lib/modules root/inside; cp -r /usr/lib/uml/modules/* root/lib/modules/
  cat > root/etc/systemd/system/inside.service <<'U'
[Unit]
After=multi-user.target
[Service]
Type=oneshot
TimeoutStartSec=infinity
ExecStart=/bin/sh -c '/inside/run > /dev/tty0 2>&1; status=$$?; if [ $$status = 88 ]; then systemctl --no-block reboot; else echo "exit status $$status" > /dev/tty0; systemctl poweroff --force --force; fi'
U
  mkdir -p root/etc/systemd/system/multi-user.target.wants
  ln -sf ../inside.service root/etc/systemd/system/multi-user.target.wants/inside.service
  : > root/etc/fstab; rm -f root/etc/systemd/system/getty.target.wants/*
  ln -sf /dev/null root/etc/systemd/system/console-getty.service
fi
cc -O2 -shared -fPIC -o uml_fp.so "$here/uml_fp.c"
rm -rf root/inside; mkdir root/inside; install -m 755 "$script" root/inside/run
[ ${#files[@]} = 0 ] || cp -rL "${files[@]}" root/inside/
rm -f disk.img; truncate -s "$(( $(du -sm root | cut -f1) + 600 ))M" disk.img; mke2fs -q -t ext4 -d root disk.img
LD_PRELOAD=$PWD/uml_fp.so timeout -k 5 "${SECONDS_MAX:-400}" linux mem="${MEMORY:-1G}" ubd0=disk.img root=/dev/ubda rw \
  con=null con0=fd:0,fd:1 systemd.show_status=0 quiet </dev/null > console.log 2> kernel.log || true
tr -d '\r' < console.log | grep -v -e '^exit status' -e '^reboot: ' -e '^SELinux' -e '^mmapper' -e '^systemd\[' || true
status=$(tr -d '\r' < console.log | sed -n 's/^exit status \([0-9]*\)$/\1/p' | tail -n 1)
[ -n "$status" ] && exit "$status"
grep -q inside.service console.log kernel.log || ! grep -q 'Kernel panic' console.log kernel.log || skip "user-mode Linux cannot start here: see $dir/kernel.log"
echo "boot.sh: the script did not end; see $PWD/console.log and kernel.log" >&2
exit 1
