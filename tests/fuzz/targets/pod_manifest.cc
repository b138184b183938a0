// Makes pods and Jobs of what an operator describes as a pod: it is refused with a reason, or a
// worker runs in what is made of it.
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "common/base/check.h"
#include "server/provision/kubernetes/manifest.h"
#include "tests/fuzz/target.h"

namespace trainyard::fuzz::pod_manifest {
namespace {

using nlohmann::json;
using provision::kubernetes::CheckPod;
using provision::kubernetes::JobManifest;
using provision::kubernetes::ManifestOptions;
using provision::kubernetes::PodManifest;

constexpr char kPilot[] = "ty-1a2b-gpu-7";
constexpr size_t kMessageBytesMax = 32 * 1024;

// Looks at a manifest that was made: one container has the worker's arguments.
void CheckIsWorker(const json& pod) {
  TY_CHECK(pod.at("metadata").at("labels").at("trainyard.dev/pilot") == kPilot);
  TY_CHECK(pod.at("spec").at("restartPolicy") == "Never");
  int workers = 0;
  for (const json& container : pod.at("spec").at("containers")) {
    TY_CHECK(container.is_object());
    for (const json& word : container.value("args", json::array())) {
      if (word.is_string() && absl::StartsWith(word.get<std::string>(), "--name=ty-")) ++workers;
    }
  }
  TY_CHECK(workers == 1);
}

void Run(absl::string_view bytes) {
  provision::ProviderSpec spec;
  spec.name = "gpu";
  spec.kind = provision::ProviderKind::kKubernetes;
  for (const char* type : {"h200", "cpu"}) {
    spec.node = {4, type, 8, int64_t{1} << 30};
    const ManifestOptions options = {std::string(bytes), "ml", "team", {"--server=tls://here:1"}};
    const absl::Status checked = CheckPod(spec, options);
    if (!checked.ok()) {
      TY_CHECK(absl::IsInvalidArgument(checked));
      // The message is sent back in the head of an answer.
      TY_CHECK(checked.message().size() <= kMessageBytesMax);
      continue;
    }
    for (const int32_t nodes : {1, 2}) {
      spec.nodes = nodes;
      CheckIsWorker(json::parse(PodManifest("1a2b", spec, options, kPilot, nodes - 1)));
      CheckIsWorker(
          json::parse(JobManifest("1a2b", spec, options, kPilot)).at("spec").at("template"));
    }
  }
}

// A value of two bytes ("1,") becomes 16 bytes of JSON in memory, in lists that grow by doubling,
// and is copied into a manifest. A pod has at most 128 KiB.
const Registration kTarget({.name = "pod_manifest", .run = Run, .fixed_bytes = int64_t{24} << 20});

}  // namespace
}  // namespace trainyard::fuzz::pod_manifest
