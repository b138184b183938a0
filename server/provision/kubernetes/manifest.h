// Writes the objects that Kubernetes is given for a pilot, from the pod that an operator described.
// All of them are JSON texts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/provision/core/provider.h"

namespace trainyard::provision::kubernetes {

// These labels tell whose a pod or a Job is. A list by them finds all that is ours.
inline constexpr char kServerLabel[] = "trainyard.dev/server";
inline constexpr char kProviderLabel[] = "trainyard.dev/provider";
inline constexpr char kPilotLabel[] = "trainyard.dev/pilot";
inline constexpr char kNodesLabel[] = "trainyard.dev/nodes";  // how many pods the pilot has
inline constexpr char kQueueLabel[] = "kueue.x-k8s.io/queue-name";
// Workers get so long to write checkpoints and to let their jobs go on elsewhere. The grace period
// of the pod is longer, so that a worker ends by itself before it is killed.
inline constexpr int64_t kDrainSeconds = 300;
inline constexpr int64_t kGraceSeconds = kDrainSeconds + 30;

// Holds what the objects say besides the spec of the provider.
struct ManifestOptions {
  std::string pod;    // a Pod or a PodTemplateSpec, as JSON
  std::string space;  // the namespace of the pilots
  std::string queue;  // of Kueue; empty for pods without it
  // Arguments of the worker that all pilots share: where the server is, and its fingerprint.
  std::vector<std::string> worker;
};

// Returns OK, or INVALID_ARGUMENT (INVALID_SPEC) with the violations and the path of each field in
// the pod. All that is read to make a manifest has the right kind afterwards. Pods are refused that
// could do more on a node than a container should, and those that contradict the spec.
absl::Status CheckPod(const ProviderSpec& spec, const ManifestOptions& options);

// These expect a pod that CheckPod has accepted.
//
// Returns the Pod of a node of a pilot. It is called as the worker that it runs.
std::string PodManifest(absl::string_view server_id, const ProviderSpec& spec,
                        const ManifestOptions& options, const std::string& pilot, int32_t node);
// Returns the Job of a pilot, which Kueue lets begin as a whole. The index of a pod chooses the
// name of its worker and the file of its token, and nothing else.
std::string JobManifest(absl::string_view server_id, const ProviderSpec& spec,
                        const ManifestOptions& options, const std::string& pilot);

// An object that exists.
struct Owner {
  std::string api_version;
  std::string kind;
  std::string name;
  std::string uid;
};
// Returns the Secret with the join tokens of a pilot, by node. It goes with the last of its owners.
std::string SecretManifest(absl::string_view server_id, const ProviderSpec& spec,
                           const std::string& pilot, const std::vector<std::string>& tokens,
                           const std::vector<Owner>& owners);

}  // namespace trainyard::provision::kubernetes
