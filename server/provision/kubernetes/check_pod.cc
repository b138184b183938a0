// Looks at all of the pod that is read again when a pilot is made, and at what contradicts the
// spec.
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "server/provision/kubernetes/check_rights.h"
#include "server/provision/kubernetes/manifest.h"
#include "server/provision/kubernetes/pod.h"

namespace trainyard::provision::kubernetes {
namespace {

using nlohmann::json;

// No node has so many.
constexpr int64_t kDevicesMax = 1024;

// Flags of the worker that a pilot is given. The worker refuses to be given one twice.
constexpr absl::string_view kOurFlags[] = {"--server",      "--server_fingerprint",
                                           "--name",        "--join_token_file",
                                           "--state_dir",   "--run_as",
                                           "--jobs_of",     "--drain_on_stop",
                                           "--cpu_devices", "--nvml"};
// Labels that say whose a pod is.
constexpr const char* kOurLabels[] = {kServerLabel, kProviderLabel, kPilotLabel, kNodesLabel,
                                      kQueueLabel};
void CheckWords(const json& words, const std::string& path, Findings& findings) {
  if (!findings.IsList(words, path)) return;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string each = absl::StrCat(path, "[", i, "]");
    if (!words[i].is_string()) {
      findings.Add(each, "is no text");
      continue;
    }
    const std::string word = words[i].get<std::string>();
    const std::string flag = word.substr(0, word.find('='));
    for (const absl::string_view ours : kOurFlags) {
      if (flag == ours) {
        findings.Add(each, absl::StrCat("'", flag, "' is set by the server for each pilot"));
      }
    }
  }
}

// Checks whether the limits make as many devices as the spec says.
void CheckDevices(const ProviderSpec& spec, const json& limits, const std::string& path,
                  Findings& findings) {
  int64_t devices = 0;
  std::string named;
  for (const auto& [name, amount] : limits.items()) {
    if (!IsGpu(name)) continue;
    int64_t count = amount.is_number_integer() ? amount.get<int64_t>() : -1;
    named = absl::StrCat(path, ".", name);
    if (amount.is_string() && !absl::SimpleAtoi(PodText(amount), &count)) count = -1;
    if (count < 0 || count > kDevicesMax || devices + count > kDevicesMax) {
      findings.Add(named, absl::StrCat(PodJson(amount), " is no number of devices"));
      return;
    }
    devices += count;
  }
  if (named.empty()) return;
  if (spec.node.device_type == "cpu") {
    if (devices == 0) return;
    findings.Add(named,
                 "asks for GPUs, and the devices of the provider are of the type cpu; say "
                 "--device-type");
  } else if (devices != spec.node.devices) {
    findings.Add(named, absl::StrCat("makes ", devices, " devices, and the provider has ",
                                     spec.node.devices, "; say the same"));
  }
}

// Checks what the worker's container says of its resources.
void CheckResources(const ProviderSpec& spec, const json& resources, const std::string& path,
                    Findings& findings) {
  if (!findings.IsObject(resources, path)) return;
  for (const char* part : {"requests", "limits"}) {
    const json& amounts = PodPart(resources, part);
    const std::string each = absl::StrCat(path, ".", part);
    if (!findings.IsObject(amounts, each)) continue;
    findings.CheckTexts(amounts, each, /*takes_numbers=*/true);
  }
  const json& limits = PodPart(resources, "limits");
  if (limits.is_object()) CheckDevices(spec, limits, absl::StrCat(path, ".limits"), findings);
}

void CheckWorker(const ProviderSpec& spec, const json& pod_spec, Findings& findings) {
  const json& containers = PodPart(pod_spec, "containers");
  const int index = WorkerIndex(containers);
  if (index < 0) {
    findings.Add("spec.containers",
                 absl::StrCat("has no container '", kWorkerContainer,
                              "', in which the worker would run; there may be one container of "
                              "any name, or several with one of this name"));
    return;
  }
  const std::string path = absl::StrCat("spec.containers[", index, "]");
  const json& worker = containers[static_cast<size_t>(index)];
  if (PodText(PodPart(worker, "image")).empty()) {
    findings.Add(absl::StrCat(path, ".image"), "is missing; name the image of the worker");
  }
  CheckWords(PodPart(worker, "command"), absl::StrCat(path, ".command"), findings);
  CheckWords(PodPart(worker, "args"), absl::StrCat(path, ".args"), findings);
  CheckResources(spec, PodPart(worker, "resources"), absl::StrCat(path, ".resources"), findings);
  for (const char* list : {"env", "volumeMounts"}) {
    (void)findings.IsListOfObjects(PodPart(worker, list), absl::StrCat(path, ".", list));
  }
  for (const char* probe : {"livenessProbe", "startupProbe"}) {
    if (worker.contains(probe)) {
      findings.Add(absl::StrCat(path, ".", probe),
                   "could kill a worker that cannot reach its server now, with all its jobs");
    }
  }
}

void CheckSpecOfPod(const ProviderSpec& spec, const json& pod_spec, Findings& findings) {
  const json& policy = PodPart(pod_spec, "restartPolicy");
  if (!policy.is_null() && policy != json("Never")) {
    findings.Add("spec.restartPolicy",
                 "has to be Never: a pilot that has ended must not begin again");
  }
  if (pod_spec.contains("activeDeadlineSeconds")) {
    findings.Add("spec.activeDeadlineSeconds", "is set from --time-limit");
  }
  if (pod_spec.contains("ephemeralContainers")) {
    findings.Add("spec.ephemeralContainers", "cannot be there when a pod is made");
  }
  bool are_lists = true;
  for (const char* list : {"containers", "initContainers", "volumes"}) {
    const json& entries = PodPart(pod_spec, list);
    const bool is_fine = findings.IsListOfObjects(entries, absl::StrCat(kSpec, ".", list));
    are_lists = are_lists && (is_fine || entries.is_null());
  }
  if (are_lists) CheckRights(pod_spec, findings);
  if (findings.empty()) CheckWorker(spec, pod_spec, findings);
}

void CheckMetadata(const ManifestOptions& options, const json& metadata, Findings& findings) {
  for (const auto& [name, value] : metadata.items()) {
    if (name == "labels") {
      if (!findings.IsObject(value, "metadata.labels")) continue;
      findings.CheckTexts(value, "metadata.labels", /*takes_numbers=*/false);
      for (const char* ours : kOurLabels) {
        if (value.contains(ours)) {
          findings.Add(absl::StrCat("metadata.labels.", ours),
                       ours == kQueueLabel ? "is set from --queue" : "is set by the server");
        }
      }
    } else if (name == "annotations") {
      if (!findings.IsObject(value, "metadata.annotations")) continue;
      findings.CheckTexts(value, "metadata.annotations", /*takes_numbers=*/false);
    } else if (name == "namespace") {
      if (value != json(options.space)) {
        findings.Add("metadata.namespace",
                     absl::StrCat("is ", PodJson(value), ", and pilots are in '", options.space,
                                  "'; say --namespace"));
      }
    } else if (name != "name" && name != "creationTimestamp") {
      // A name is replaced, since each pilot has its own.
      findings.Add(absl::StrCat("metadata.", name),
                   "cannot be given; expected labels and annotations");
    }
  }
}

}  // namespace

absl::Status CheckPod(const ProviderSpec& spec, const ManifestOptions& options) {
  TY_ASSIGN_OR_RETURN(const json pod, ParsePod(options.pod));
  Findings findings;
  for (const auto& [name, value] : pod.items()) {
    const bool is_kind = name == "apiVersion" || name == "kind";
    if (!is_kind && name != "metadata" && name != kSpec) {
      findings.Add(name, "is unknown; expected metadata and spec");
    }
  }
  const json& kind = PodPart(pod, "kind");
  if (!kind.is_null() && kind != json("Pod") && kind != json("PodTemplateSpec")) {
    findings.Add("kind", absl::StrCat("is ", PodJson(kind), "; expected Pod"));
  }
  if (findings.IsObject(PodPart(pod, "metadata"), "metadata")) {
    CheckMetadata(options, PodPart(pod, "metadata"), findings);
  }
  if (findings.IsObject(PodPart(pod, kSpec), kSpec)) {
    CheckSpecOfPod(spec, PodPart(pod, kSpec), findings);
  } else if (!pod.contains(kSpec)) {
    findings.Add(kSpec, "is missing; name at least a container with the image of the worker");
  }
  return findings.Result();
}

}  // namespace trainyard::provision::kubernetes
