// Refuses pods in which a program could act as root on the node, or as the server in the cluster:
// programs of all users run in pilots.
#pragma once

#include <nlohmann/json.hpp>

#include "server/provision/kubernetes/pod.h"

namespace trainyard::provision::kubernetes {

// The service account of the server in deploy/kubernetes, which may make and delete pods.
inline constexpr char kServerAccount[] = "trainyard-server";

// Sets the rights of the profile `restricted` where the pod says nothing, for the pod and for the
// container with the worker. Both are objects.
void AddRights(nlohmann::json& pod_spec, nlohmann::json& worker);

// Looks at the spec of a pod, of which each list of containers and of volumes is a list of objects,
// if it is there. What AddRights sets is taken into account.
//
// The rules are those of Kubernetes' profile `baseline` for what matters on a node. A folder of the
// node may be mounted, since data sets are there: read-only, by containers that are not root and
// cannot become root, and none of the folders of the system, in which sockets and secrets lie.
void CheckRights(const nlohmann::json& pod_spec, Findings& findings);

}  // namespace trainyard::provision::kubernetes
