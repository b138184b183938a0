#!/bin/sh
# Makes the final stage of an image.
#   install.sh packages [PACKAGE...]   installs the packages that collect.sh has found, and makes the user and the folders
#   install.sh check                   makes sure that the programs find all their libraries
set -eu
what=$1
shift
if [ "$what" = packages ]; then
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  # Word splitting is meant: there is one package in each line.
  # shellcheck disable=SC2046
  apt-get install -y -qq --no-install-recommends ca-certificates "$@" $(cat /usr/share/trainyard/packages) > /dev/null
  rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/dpkg.log
  # Numbers, because a kubelet cannot look a name up, and the same ones in all images, so that they may share volumes.
  echo 'trainyard:x:10001:' >> /etc/group
  echo 'trainyard:x:10001:10001:Trainyard:/var/lib/trainyard:/usr/sbin/nologin' >> /etc/passwd
  install -d -m 700 -o 10001 -g 10001 /var/lib/trainyard
  install -d -m 755 -o 10001 -g 10001 /run/trainyard
  exit
fi
for file in /usr/bin/trainyard*; do
  # The driver's libraries come into the container when it starts.
  if ldd "$file" | grep 'not found' | grep -v -e libcuda.so -e libnvidia-ml.so >&2; then
    echo "install.sh: libraries of $file are missing; take a base image that has them" >&2
    exit 1
  fi
done
