#!/bin/sh
# Collects programs and the names of the Debian packages that they need into a folder. It runs in the build stage of the
# Containerfiles beside it.
#   collect.sh FROM TO PROGRAM...
# TO/bin gets the programs, and TO/packages the packages whose libraries the programs load. A program whose name begins
# with '?' may be missing. Libraries of no Debian package, such as those of CUDA, are those of the base image.
set -eu
from=$1
to=$2
shift 2
mkdir -p "$to/bin"
for program in "$@"; do
  name=${program#\?}
  if [ -x "$from/$name" ]; then
    install -m 755 "$from/$name" "$to/bin/$name"
  elif [ "$name" = "$program" ]; then
    echo "collect.sh: there is no program '$name' in $from" >&2
    exit 1
  fi
done
: > "$to/libraries"
for file in "$to"/bin/*; do
  ldd "$file" > "$to/ldd" 2>&1 || true
  case $file in
    *-cuda) ;;
    *)
      if grep 'not found' "$to/ldd" >&2; then
        echo "collect.sh: libraries of $file are missing in the build stage; scripts/install_deps.sh has to install them" >&2
        exit 1
      fi
      ;;
  esac
  awk '$2 == "=>" && $3 ~ /^\// { print $3 }' "$to/ldd" >> "$to/libraries"
done
# A library is listed under the path at which the loader finds it, and a package may know it under the one without /usr.
sort -u "$to/libraries" | while read -r library; do
  real=$(readlink -f "$library")
  for path in "$library" "$real" "${library#/usr}" "${real#/usr}"; do
    owner=$(dpkg-query --search "$path" 2>/dev/null | sed 's/:.*//' | head -n 1)
    if [ -n "$owner" ]; then
      echo "$owner"
      break
    fi
  done
done | sort -u > "$to/found"
# Those of NVIDIA come with the base image, and in the version that it wants.
grep -v -e '^cuda-' -e '^libcublas' -e '^libcud' -e '^libcurand' -e '^libnccl' -e '^libnv' "$to/found" > "$to/packages"
rm "$to/ldd" "$to/libraries" "$to/found"
