#!/usr/bin/env bash
# Makes Debian packages of what was built: package.sh [--version VERSION] [BUILD [OUT]]. BUILD is build/release by default, or
# build/cuda for trainyard-worker-cuda, and OUT is build/packages. The version is that of the tag, vX.Y.Z, or else that of
# the project with the day and the commit. The same commit and the same build give the same bytes. DEBFULLNAME and DEBEMAIL
# name who answers for the packages.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
version=
if [ "${1:-}" = --version ]; then version=$2; shift 2; fi
build=$(realpath "${1:-$root/build/release}")
out=${2:-$root/build/packages}
for tool in dpkg-buildpackage dh; do
  command -v "$tool" >/dev/null || { echo "package.sh: $tool is missing (apt install dpkg-dev debhelper)" >&2; exit 1; }
done
[ -x "$build/bin/trainyard" ] || { echo "package.sh: there is no $build/bin/trainyard; build the target 'shipped' first" >&2; exit 1; }

epoch=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct)}
export SOURCE_DATE_EPOCH=$epoch TZ=UTC LC_ALL=C.UTF-8
if [ -z "$version" ]; then
  tag=$(git -C "$root" describe --tags --exact-match --match 'v[0-9]*' 2>/dev/null || true)
  project=$(sed -n 's/^project(trainyard VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
  version=${tag#v}
  version=${version/-/\~}  # Debian sorts a candidate before its release by a tilde
  [ -n "$version" ] || version=$project+$(date -u -d "@$epoch" +%Y%m%d).$(git -C "$root" rev-parse --short=8 HEAD)
fi

# The pages say their date. They are made again here, so that they have that of the commit.
"$root/scripts/man_pages.py" "$build/bin" "$build/words/man"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# debhelper writes paths of the folder nowhere, but a program that does would show it: the name is always the same.
source=$work/trainyard
mkdir -p "$source" "$out"
cp -r "$root/deploy/debian" "$source/debian"
cp "$root/LICENSE" "$source/"
if grep -q "^TRAINYARD_CUDA:STRING=ON$" "$build/CMakeCache.txt"; then cat "$root/deploy/debian/control.cuda" >> "$source/debian/control"; fi
sed -i "s/^Maintainer: .*/Maintainer: ${DEBFULLNAME:-Trainyard} <${DEBEMAIL:-trainyard@localhost}>/" "$source/debian/control"
cat > "$source/debian/changelog" <<C
trainyard ($version) unstable; urgency=medium

  * See /usr/share/doc/trainyard/CHANGELOG.md of the package trainyard.

 -- ${DEBFULLNAME:-Trainyard} <${DEBEMAIL:-trainyard@localhost}>  $(date -u -R -d "@$epoch")
C
log=$work/log
if ! (cd "$source" && BUILD=$build DEB_BUILD_OPTIONS="nocheck noautodbgsym" dpkg-buildpackage -b -us -uc -d) > "$log" 2>&1; then
  tail -n 40 "$log" >&2
  exit 1
fi
"$root/client/python/make_deb.py" --version "$version" "$work" >/dev/null
grep -i 'dpkg-shlibdeps: warning.*not found' "$log" >&2 || true
# Packages of another commit beside these would contradict them when all are installed.
rm -f "$out"/trainyard*_*.deb "$out"/python3-trainyard_*.deb
for package in "$work"/*.deb; do
  cp "$package" "$out/"
  printf '%9d  %s\n' "$(stat -c %s "$package")" "$out/$(basename "$package")"
done
