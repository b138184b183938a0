// Adds to the operator's pod what makes a worker of it, and leaves the rest as it is.
#include "server/provision/kubernetes/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/provision/kubernetes/check_rights.h"
#include "server/provision/kubernetes/pod.h"

namespace trainyard::provision::kubernetes {
namespace {

using nlohmann::json;

constexpr char kTokenFolder[] = "/var/run/secrets/trainyard";
constexpr char kStateFolder[] = "/var/lib/trainyard";
constexpr char kSharedMemory[] = "/dev/shm";
constexpr char kTokenVolume[] = "trainyard-token";
constexpr char kStateVolume[] = "trainyard-state";
constexpr char kSharedMemoryVolume[] = "trainyard-shared-memory";
constexpr char kIndexVariable[] = "TRAINYARD_PILOT_NODE";
constexpr char kIndexField[] = "metadata.annotations['batch.kubernetes.io/job-completion-index']";
constexpr char kGpu[] = "nvidia.com/gpu";
// A Job that has ended goes after this even if no server looks after it.
constexpr int64_t kFinishedSeconds = 3600;

// Says at which path of the pod something is mounted.
bool HasMount(const json& worker, absl::string_view path) {
  const json& mounts = PodPart(worker, "volumeMounts");
  return mounts.is_array() && std::any_of(mounts.begin(), mounts.end(), [&](const json& mount) {
           return PodText(PodPart(mount, "mountPath")) == path;
         });
}

void AddVolume(json& pod_spec, json& worker, const char* name, const char* path, json source,
               bool is_read_only) {
  source["name"] = name;
  json mount = {{"name", name}, {"mountPath", path}};
  if (is_read_only) mount["readOnly"] = true;
  pod_spec["volumes"].push_back(std::move(source));
  worker["volumeMounts"].push_back(std::move(mount));
}

void AddResources(const ProviderSpec& spec, json& worker) {
  json& resources = worker["resources"];
  const auto says = [&resources](const std::string& name) {
    return PodPart(PodPart(resources, "limits"), name) != json() ||
           PodPart(PodPart(resources, "requests"), name) != json();
  };
  if (!says("cpu")) resources["requests"]["cpu"] = absl::StrCat(spec.node.cpus);
  if (!says("memory") && spec.node.memory_bytes > 0) {
    const std::string bytes = absl::StrCat(spec.node.memory_bytes);
    resources["requests"]["memory"] = bytes;
    // The worker offers to jobs what its limit permits.
    resources["limits"]["memory"] = bytes;
  }
  if (spec.node.device_type == "cpu") return;
  for (const auto& [name, amount] : PodPart(resources, "limits").items()) {
    if (IsGpu(name)) return;
  }
  resources["limits"][kGpu] = absl::StrCat(spec.node.devices);
}

void AddArguments(const ProviderSpec& spec, const ManifestOptions& options,
                  const std::string& suffix, const std::string& pilot, const std::string& token,
                  json& worker) {
  json& args = worker["args"];
  for (const std::string& word : options.worker) args.push_back(word);
  args.push_back(absl::StrCat("--name=", pilot, suffix));
  args.push_back(absl::StrCat("--join_token_file=", kTokenFolder, "/", token));
  args.push_back(absl::StrCat("--state_dir=", kStateFolder, "/worker"));
  args.push_back(absl::StrCat("--drain_on_stop=", kDrainSeconds, "s"));
  // A container has no accounts, so that all jobs run as one user.
  args.push_back("--run_as=anyone");
  if (!spec.owner.empty()) args.push_back(absl::StrCat("--jobs_of=", spec.owner));
  if (spec.node.device_type == "cpu") {
    args.push_back(absl::StrCat("--cpu_devices=", spec.node.devices));
    // An empty value has to be a word of its own.
    args.push_back("--nvml");
    args.push_back("");
  }
}

json LabelsOf(absl::string_view server_id, const ProviderSpec& spec, const std::string& pilot) {
  return {{kServerLabel, std::string(server_id)},
          {kProviderLabel, spec.name},
          {kPilotLabel, pilot},
          {kNodesLabel, absl::StrCat(spec.nodes)}};
}

// Returns metadata and spec of a pod. The suffix ends the name of its worker, and `tokens` are the
// keys of the Secret and the files that they become.
json TemplateOf(absl::string_view server_id, const ProviderSpec& spec,
                const ManifestOptions& options, const std::string& pilot, const std::string& suffix,
                const std::string& token, json tokens) {
  const json given = ParsePod(options.pod).value_or(json::object());
  json metadata = json::object();
  for (const char* part : {"labels", "annotations"}) {
    const json& texts = PodPart(PodPart(given, "metadata"), part);
    if (texts.is_object()) metadata[part] = texts;
  }
  // The policies of deploy/kubernetes let pods with these labels reach the server and each other.
  // They are not those of workers, whose budget of disruptions cannot count pods without a
  // controller.
  for (const auto& [label, value] : {std::pair("app.kubernetes.io/name", "trainyard"),
                                     std::pair("app.kubernetes.io/component", "pilot")}) {
    if (!metadata["labels"].contains(label)) metadata["labels"][label] = value;
  }
  metadata["labels"].update(LabelsOf(server_id, spec, pilot));
  json pod_spec = PodPart(given, kSpec);
  json& worker =
      pod_spec["containers"][static_cast<size_t>(WorkerIndex(PodPart(pod_spec, "containers")))];
  if (!worker.contains("name")) worker["name"] = kWorkerContainer;
  pod_spec["restartPolicy"] = "Never";
  // Programs of users run in the pod, and must not act as it.
  if (!pod_spec.contains("automountServiceAccountToken")) {
    pod_spec["automountServiceAccountToken"] = false;
  }
  if (!pod_spec.contains("enableServiceLinks")) pod_spec["enableServiceLinks"] = false;
  if (!pod_spec.contains("terminationGracePeriodSeconds")) {
    pod_spec["terminationGracePeriodSeconds"] = kGraceSeconds;
  }
  AddRights(pod_spec, worker);
  AddResources(spec, worker);
  // The group of the pod reads the token where there is one.
  const bool has_group = PodPart(pod_spec, "securityContext").contains("fsGroup");
  AddVolume(pod_spec, worker, kTokenVolume, kTokenFolder,
            {{"secret",
              {{"secretName", pilot},
               {"items", std::move(tokens)},
               {"defaultMode", has_group ? 0440 : 0444}}}},
            /*is_read_only=*/true);
  if (!HasMount(worker, kStateFolder)) {
    AddVolume(pod_spec, worker, kStateVolume, kStateFolder, {{"emptyDir", json::object()}}, false);
  }
  // Ranks and data loaders exchange data here; a container has 64 MiB of it otherwise.
  if (!HasMount(worker, kSharedMemory)) {
    AddVolume(pod_spec, worker, kSharedMemoryVolume, kSharedMemory,
              {{"emptyDir", {{"medium", "Memory"}}}}, false);
  }
  AddArguments(spec, options, suffix, pilot, token, worker);
  return {{"metadata", std::move(metadata)}, {kSpec, std::move(pod_spec)}};
}

}  // namespace

std::string PodManifest(absl::string_view server_id, const ProviderSpec& spec,
                        const ManifestOptions& options, const std::string& pilot, int32_t node) {
  const std::string name = PilotWorkerName(pilot, spec.nodes, node);
  // A pod sees its own token alone.
  json pod = TemplateOf(server_id, spec, options, pilot, name.substr(pilot.size()), "token",
                        json::array({{{"key", absl::StrCat("token-", node)}, {"path", "token"}}}));
  pod["apiVersion"] = "v1";
  pod["kind"] = "Pod";
  pod["metadata"]["name"] = name;
  pod["metadata"]["namespace"] = options.space;
  pod[kSpec]["activeDeadlineSeconds"] = spec.time_limit_us / kSecondUs;
  return PodJson(pod);
}

std::string JobManifest(absl::string_view server_id, const ProviderSpec& spec,
                        const ManifestOptions& options, const std::string& pilot) {
  json tokens = json::array();
  for (int32_t node = 0; node < spec.nodes; ++node) {
    const std::string key = absl::StrCat("token-", node);
    tokens.push_back({{"key", key}, {"path", key}});
  }
  const std::string index = absl::StrCat("$(", kIndexVariable, ")");
  json pod = TemplateOf(server_id, spec, options, pilot, spec.nodes == 1 ? "" : "-n" + index,
                        absl::StrCat("token-", index), std::move(tokens));
  json& containers = pod[kSpec]["containers"];
  json& worker = containers[static_cast<size_t>(WorkerIndex(containers))];
  // Arguments may only name variables, and they may name those that stand before.
  json variables = json::array(
      {{{"name", kIndexVariable}, {"valueFrom", {{"fieldRef", {{"fieldPath", kIndexField}}}}}}});
  for (const json& variable : PodPart(worker, "env")) variables.push_back(variable);
  worker["env"] = std::move(variables);
  json labels = LabelsOf(server_id, spec, pilot);
  labels[kQueueLabel] = options.queue;
  return PodJson(
      {{"apiVersion", "batch/v1"},
       {"kind", "Job"},
       {"metadata", {{"name", pilot}, {"namespace", options.space}, {"labels", std::move(labels)}}},
       {kSpec,
        {{"completionMode", "Indexed"},
         // Kueue lets it begin when all its pods fit.
         {"suspend", true},
         {"parallelism", spec.nodes},
         {"completions", spec.nodes},
         {"backoffLimit", 0},
         {"activeDeadlineSeconds", spec.time_limit_us / kSecondUs},
         {"ttlSecondsAfterFinished", kFinishedSeconds},
         {"template", std::move(pod)}}}});
}

std::string SecretManifest(absl::string_view server_id, const ProviderSpec& spec,
                           const std::string& pilot, const std::vector<std::string>& tokens,
                           const std::vector<Owner>& owners) {
  json data = json::object();
  for (size_t node = 0; node < tokens.size(); ++node) {
    data[absl::StrCat("token-", node)] = absl::Base64Escape(tokens[node]);
  }
  json references = json::array();
  for (const Owner& owner : owners) {
    references.push_back({{"apiVersion", owner.api_version},
                          {"kind", owner.kind},
                          {"name", owner.name},
                          {"uid", owner.uid}});
  }
  json metadata = {{"name", pilot}, {"labels", LabelsOf(server_id, spec, pilot)}};
  if (!references.empty()) metadata["ownerReferences"] = std::move(references);
  return PodJson({{"apiVersion", "v1"},
                  {"kind", "Secret"},
                  {"metadata", std::move(metadata)},
                  {"type", "Opaque"},
                  {"data", std::move(data)}});
}

}  // namespace trainyard::provision::kubernetes
