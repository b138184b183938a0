// Reads the pod that an operator described, and answers questions about it that its checks and the
// making of manifests share.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/errors.h"

namespace trainyard::provision::kubernetes {

// The container that runs the worker, if a pod has several.
inline constexpr char kWorkerContainer[] = "worker";
// An operator's pod is a page of text. etcd itself takes 1.5 MiB.
inline constexpr size_t kPodBytesMax = size_t{128} << 10;
// The deepest place of a pod that Kubernetes knows, in the template of a claim, is 12 levels deep.
// The functions that read and copy JSON call themselves once for each level.
inline constexpr int kPodDepthMax = 32;
inline constexpr char kSpec[] = "spec";

// Returns the pod without members that are null, since those count as absent in Kubernetes. Returns
// INVALID_ARGUMENT (INVALID_SPEC) for a text that is too long, nested too deep, or no JSON of an
// object.
absl::StatusOr<nlohmann::json> ParsePod(absl::string_view text);

// Returns a member, or null.
const nlohmann::json& PodPart(const nlohmann::json& object, const std::string& name);
// Returns the text, or "" for what is none.
std::string PodText(const nlohmann::json& value);
// Returns the value as JSON.
std::string PodJson(const nlohmann::json& value);

// Returns the index of the container with the worker, or -1.
int WorkerIndex(const nlohmann::json& containers);

// Returns true for nvidia.com/gpu, amd.com/gpu, gpu.intel.com/i915, nvidia.com/mig-1g.5gb and such,
// and not for network adapters and other things that stand beside the devices that jobs get.
bool IsGpu(absl::string_view resource);

// The first mistakes of a pod say enough, and all of them are sent in the head of an answer.
inline constexpr size_t kFindingsMax = 30;

// Collects violations. Paths begin at the pod.
class Findings {
 public:
  void Add(absl::string_view path, const std::string& why);
  // Each of these returns true if the value is there and is of that kind. It says so if the value
  // is there and is of another kind.
  bool IsObject(const nlohmann::json& value, absl::string_view path);
  bool IsList(const nlohmann::json& value, absl::string_view path);
  // Returns true for a list of which each entry is a mapping.
  bool IsListOfObjects(const nlohmann::json& value, absl::string_view path);
  // Looks whether all members of a mapping are texts, or texts and numbers.
  void CheckTexts(const nlohmann::json& object, absl::string_view path, bool takes_numbers);

  bool empty() const { return all_.empty(); }
  absl::Status Result() const { return all_.empty() ? absl::OkStatus() : InvalidFields(all_); }

 private:
  std::vector<FieldViolation> all_;
};

}  // namespace trainyard::provision::kubernetes
