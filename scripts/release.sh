#!/usr/bin/env bash
# Makes a release: release.sh [--no-tests] VERSION. It builds and tests a clean copy of HEAD in build/release-VERSION, and puts
# there: the packages of Debian, the source, a bill of materials (SPDX), the changes, and the hashes of all. The tag
# vVERSION is made at the end; nothing is published. Where nvcc is installed, trainyard-worker-cuda is made as well.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
die() { echo "release.sh: $1" >&2; exit 1; }
tests=yes
if [ "${1:-}" = --no-tests ]; then tests=no; shift; fi
version=${1:-}
[[ "$version" =~ ^[0-9]+\.[0-9]+\.[0-9]+(-[a-z0-9.]+)?$ ]] || die "expected a version such as 1.2.0 or 1.2.0-rc.1, and not '$version'"
cd "$root"
[ -z "$(git status --porcelain)" ] || die "the working tree has changes; commit them first"
! git rev-parse -q --verify "refs/tags/v$version" >/dev/null || die "the tag v$version is there already; choose the next version"
[ "$(sed -n 's/^project(trainyard VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)" = "${version%%-*}" ] ||
  die "CMakeLists.txt says another version: change its line 'project(trainyard VERSION ...)' to ${version%%-*}, and commit"
changes=$(awk -v version="$version" '/^## / {on = $2 == version; next} on' CHANGELOG.md)
[ -n "${changes//[[:space:]]/}" ] || die "CHANGELOG.md has no section '## $version'; rename 'Unreleased' to it, with the day, and commit"

out=$root/build/release-$version
rm -rf "$out"; mkdir -p "$out"
git clone -q --no-hardlinks "$root" "$out/source"
cd "$out/source"
# The packages take their version from the tag, which exists for good only once all has passed.
git tag "v$version"
export SOURCE_DATE_EPOCH; SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
if [ "$tests" = yes ]; then make test; fi
make packages
cp build/packages/*.deb "$out"
build=build/release
if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
  make packages PRESET=cuda
  build=build/cuda
  # The other packages stay those that were tested.
  cp -n build/packages/*.deb "$out"
fi
git archive --prefix="trainyard-$version/" HEAD | gzip -9n > "$out/trainyard-$version.tar.gz"
scripts/sbom.py "$build" "$out"/*.deb > "$out/trainyard-$version.spdx.json"
printf '%s\n' "$changes" > "$out/CHANGES-$version.md"
cd "$out"
rm -rf source
sha256sum -- *.deb *.tar.gz *.json *.md > SHA256SUMS
git -C "$root" tag -a "v$version" -m "Trainyard $version"
ls -l
echo "v$version is made, and nothing is published. Next: sign SHA256SUMS, and git push origin v$version"
