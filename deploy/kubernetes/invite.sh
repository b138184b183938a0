#!/usr/bin/env bash
# Invites workers and stores their invitations in the Secret that the pods of workers mount. It asks the server in its pod, so
# that it needs the right to execute commands there.
#   deploy/kubernetes/invite.sh trainyard-worker-0 trainyard-worker-1     workers of the StatefulSet, by the names of their pods
#   deploy/kubernetes/invite.sh --nodes trainyard.dev/worker=gpu          a worker on each node with the label
#   deploy/kubernetes/invite.sh --fingerprint                             nobody: workers that join with tokens of their pods
#                                                                         need the fingerprint of the server alone
# An invitation is good for one worker of that name, once and for an hour. A worker that has joined needs it no more, also
# after a restart, so run this for new workers only, or for one that has lost its volume.
set -euo pipefail
kubectl=${KUBECTL:-kubectl}
namespace=${NAMESPACE:-trainyard}
secret=trainyard-invitations
only_fingerprint=
if [ "${1:-}" = --fingerprint ]; then
  [ $# = 1 ] || { echo "usage: $0 WORKER... | --nodes LABEL | --fingerprint" >&2; exit 2; }
  # The answer to an invitation has the fingerprint. Its token is kept nowhere, so that nobody can use it.
  only_fingerprint=1
  workers=(nobody)
elif [ "${1:-}" = --nodes ]; then
  [ $# = 2 ] || { echo "usage: $0 WORKER... | --nodes LABEL | --fingerprint" >&2; exit 2; }
  mapfile -t workers < <("$kubectl" get nodes -l "$2" -o name | sed 's,^node/,,')
else
  workers=("$@")
fi
[ ${#workers[@]} -gt 0 ] || { echo "invite.sh: there is nobody to invite; name workers, or a label that nodes have" >&2; exit 2; }
"$kubectl" -n "$namespace" get secret "$secret" > /dev/null 2>&1 ||
  "$kubectl" -n "$namespace" create secret generic "$secret" > /dev/null
# Tokens pass through pipes alone, and never through arguments, which every user of this host may read.
for worker in "${workers[@]}"; do
  # A worker's name has no dots, and that of a node may have some. The worker makes the same of its --name.
  name=$(printf '%s' "$worker" | tr 'A-Z' 'a-z' | tr -c 'a-z0-9-' '-')
  "$kubectl" -n "$namespace" exec -i trainyard-server-0 -c server -- trainyard workers invite "$name" -o json |
    WORKER=$worker ONLY_FINGERPRINT=$only_fingerprint python3 -c '
import base64, json, os, sys
made = json.load(sys.stdin)
encode = lambda text: base64.b64encode(text.encode()).decode()
data = {"fingerprint": encode(made["fingerprint"])}
if not os.environ["ONLY_FINGERPRINT"]: data[os.environ["WORKER"]] = encode(made["text"])
json.dump({"data": data}, sys.stdout)' |
    "$kubectl" -n "$namespace" patch secret "$secret" --patch-file /dev/stdin > /dev/null
  [ -n "$only_fingerprint" ] || echo "$worker may join as $name within the hour"
done
if [ -n "$only_fingerprint" ]; then echo "workers know the server by its fingerprint"; fi
