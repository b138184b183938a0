// Adds to the operator's pod what makes a worker of it, and leaves the rest as it is.
#include "server/provision/kubernetes/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/errors.h"

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
constexpr char kSpec[] = "spec";
constexpr char kGpu[] = "nvidia.com/gpu";
// The user of the worker's image.
constexpr int64_t kImageUser = 10001;
// A Job that has ended goes after this even if no server looks after it.
constexpr int64_t kFinishedSeconds = 3600;

// Flags of the worker that a pilot is given. The worker refuses to be given one twice.
constexpr absl::string_view kOurFlags[] = {"--server",      "--server_fingerprint",
                                           "--name",        "--join_token_file",
                                           "--state_dir",   "--run_as",
                                           "--jobs_of",     "--drain_on_stop",
                                           "--cpu_devices", "--nvml"};
// Labels that say whose a pod is.
constexpr const char* kOurLabels[] = {kServerLabel, kProviderLabel, kPilotLabel, kNodesLabel,
                                      kQueueLabel};
// Rights with which a container is as good as root on its node.
constexpr absl::string_view kRefusedCapabilities[] = {"ALL", "SYS_ADMIN", "SYS_MODULE",
                                                      "SYS_PTRACE", "SYS_RAWIO"};

// Returns a member, or null.
const json& MemberOf(const json& object, const std::string& name) {
  static const json& none = *new json();
  if (!object.is_object()) return none;
  const auto found = object.find(name);
  return found == object.end() ? none : *found;
}

std::string TextOf(const json& value) {
  return value.is_string() ? value.get<std::string>() : "";
}

// Collects violations. Paths begin at the pod.
class Findings {
 public:
  void Add(absl::string_view path, std::string why) {
    all_.push_back({absl::StrCat("pod.", path), std::move(why)});
  }
  // Returns false, and says so, if the value is there and is of another type.
  bool IsObject(const json& value, absl::string_view path) {
    if (value.is_object() || value.is_null()) return value.is_object();
    Add(path, "is no mapping");
    return false;
  }
  bool IsList(const json& value, absl::string_view path) {
    if (value.is_array() || value.is_null()) return value.is_array();
    Add(path, "is no list");
    return false;
  }
  bool empty() const { return all_.empty(); }
  absl::Status Result() const { return all_.empty() ? absl::OkStatus() : InvalidFields(all_); }

 private:
  std::vector<FieldViolation> all_;
};

// Returns the index of the container with the worker, or -1.
int WorkerIndex(const json& containers) {
  if (!containers.is_array() || containers.empty()) return -1;
  if (containers.size() == 1) return 0;
  for (size_t i = 0; i < containers.size(); ++i) {
    if (TextOf(MemberOf(containers[i], "name")) == kWorkerContainer) return static_cast<int>(i);
  }
  return -1;
}

// Returns true for nvidia.com/gpu, amd.com/gpu, gpu.intel.com/i915, nvidia.com/mig-1g.5gb and such,
// and not for network adapters and other things that stand beside the devices that jobs get.
bool IsGpu(absl::string_view resource) {
  return absl::StrContains(resource, '/') &&
         (absl::StrContains(resource, "gpu") || absl::StrContains(resource, "/mig-"));
}

void CheckSecurity(const json& context, const std::string& path, Findings& findings) {
  if (!findings.IsObject(context, path)) return;
  if (MemberOf(context, "privileged") == json(true)) {
    findings.Add(absl::StrCat(path, ".privileged"),
                 "is true, and such a container sees all devices and files of its node; ask for "
                 "devices by resources.limits");
  }
  const std::string capabilities = absl::StrCat(path, ".capabilities");
  const json& added = MemberOf(MemberOf(context, "capabilities"), "add");
  if (!findings.IsList(added, capabilities + ".add")) return;
  for (size_t i = 0; i < added.size(); ++i) {
    const std::string name = TextOf(added[i]);
    if (std::find(std::begin(kRefusedCapabilities), std::end(kRefusedCapabilities), name) !=
        std::end(kRefusedCapabilities)) {
      findings.Add(absl::StrCat(capabilities, ".add[", i, "]"),
                   absl::StrCat("'", name, "' makes a container as good as root on its node"));
    }
  }
}

void CheckContainers(const json& containers, const std::string& path, Findings& findings) {
  if (!findings.IsList(containers, path)) return;
  for (size_t i = 0; i < containers.size(); ++i) {
    const std::string each = absl::StrCat(path, "[", i, "]");
    if (!findings.IsObject(containers[i], each)) continue;
    CheckSecurity(MemberOf(containers[i], "securityContext"), each + ".securityContext", findings);
  }
}

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

// Checks what the worker's container says of its resources against the spec.
void CheckResources(const ProviderSpec& spec, const json& resources, const std::string& path,
                    Findings& findings) {
  if (!findings.IsObject(resources, path)) return;
  const json& limits = MemberOf(resources, "limits");
  if (!findings.IsObject(limits, path + ".limits")) return;
  int64_t devices = 0;
  std::string named;
  for (const auto& [name, amount] : limits.items()) {
    if (!IsGpu(name)) continue;
    int64_t count = amount.is_number_integer() ? amount.get<int64_t>() : -1;
    named = absl::StrCat(path, ".limits.", name);
    if (amount.is_string() && !absl::SimpleAtoi(TextOf(amount), &count)) count = -1;
    if (count < 0) {
      findings.Add(named, absl::StrCat(amount.dump(), " is no number of devices"));
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

void CheckWorker(const ProviderSpec& spec, const json& pod_spec, Findings& findings) {
  const json& containers = MemberOf(pod_spec, "containers");
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
  if (TextOf(MemberOf(worker, "image")).empty()) {
    findings.Add(absl::StrCat(path, ".image"), "is missing; name the image of the worker");
  }
  CheckWords(MemberOf(worker, "command"), absl::StrCat(path, ".command"), findings);
  CheckWords(MemberOf(worker, "args"), absl::StrCat(path, ".args"), findings);
  CheckResources(spec, MemberOf(worker, "resources"), absl::StrCat(path, ".resources"), findings);
  for (const char* list : {"env", "volumeMounts"}) {
    (void)findings.IsList(MemberOf(worker, list), absl::StrCat(path, ".", list));
  }
  for (const char* probe : {"livenessProbe", "startupProbe"}) {
    if (worker.contains(probe)) {
      findings.Add(absl::StrCat(path, ".", probe),
                   "could kill a worker that cannot reach its server now, with all its jobs");
    }
  }
}

void CheckSpecOfPod(const ProviderSpec& spec, const json& pod_spec, Findings& findings) {
  for (const char* field : {"hostPID", "hostIPC"}) {
    if (MemberOf(pod_spec, field) == json(true)) {
      findings.Add(absl::StrCat(kSpec, ".", field), "is true, and shows the node to the pod");
    }
  }
  const json& policy = MemberOf(pod_spec, "restartPolicy");
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
  CheckContainers(MemberOf(pod_spec, "containers"), "spec.containers", findings);
  CheckContainers(MemberOf(pod_spec, "initContainers"), "spec.initContainers", findings);
  (void)findings.IsList(MemberOf(pod_spec, "volumes"), "spec.volumes");
  (void)findings.IsObject(MemberOf(pod_spec, "securityContext"), "spec.securityContext");
  if (findings.empty()) CheckWorker(spec, pod_spec, findings);
}

void CheckMetadata(const ManifestOptions& options, const json& metadata, Findings& findings) {
  for (const auto& [name, value] : metadata.items()) {
    if (name == "labels") {
      if (!findings.IsObject(value, "metadata.labels")) continue;
      for (const char* ours : kOurLabels) {
        if (value.contains(ours)) {
          findings.Add(absl::StrCat("metadata.labels.", ours),
                       ours == kQueueLabel ? "is set from --queue" : "is set by the server");
        }
      }
    } else if (name == "annotations") {
      (void)findings.IsObject(value, "metadata.annotations");
    } else if (name == "namespace") {
      if (value != json(options.space)) {
        findings.Add("metadata.namespace",
                     absl::StrCat("is ", value.dump(), ", and pilots are in '", options.space,
                                  "'; say --namespace"));
      }
    } else if (name != "name" && name != "creationTimestamp") {
      // A name is replaced, since each pilot has its own.
      findings.Add(absl::StrCat("metadata.", name),
                   "cannot be given; expected labels and "
                   "annotations");
    }
  }
}

// Says at which path of the pod something is mounted.
bool HasMount(const json& worker, absl::string_view path) {
  const json& mounts = MemberOf(worker, "volumeMounts");
  return mounts.is_array() && std::any_of(mounts.begin(), mounts.end(), [&](const json& mount) {
           return TextOf(MemberOf(mount, "mountPath")) == path;
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

void AddSecurity(json& pod_spec, json& worker) {
  // These are the rules of the profile `restricted`, and the user of the image.
  if (!pod_spec.contains("securityContext")) {
    pod_spec["securityContext"] = {{"runAsNonRoot", true},
                                   {"runAsUser", kImageUser},
                                   {"runAsGroup", kImageUser},
                                   {"fsGroup", kImageUser},
                                   {"fsGroupChangePolicy", "OnRootMismatch"},
                                   {"seccompProfile", {{"type", "RuntimeDefault"}}}};
  }
  if (!worker.contains("securityContext")) {
    worker["securityContext"] = {{"allowPrivilegeEscalation", false},
                                 {"capabilities", {{"drop", json::array({"ALL"})}}}};
  }
}

void AddResources(const ProviderSpec& spec, json& worker) {
  json& resources = worker["resources"];
  const auto says = [&resources](const std::string& name) {
    return MemberOf(MemberOf(resources, "limits"), name) != json() ||
           MemberOf(MemberOf(resources, "requests"), name) != json();
  };
  if (!says("cpu")) resources["requests"]["cpu"] = absl::StrCat(spec.node.cpus);
  if (!says("memory") && spec.node.memory_bytes > 0) {
    const std::string bytes = absl::StrCat(spec.node.memory_bytes);
    resources["requests"]["memory"] = bytes;
    // The worker offers to jobs what its limit permits.
    resources["limits"]["memory"] = bytes;
  }
  if (spec.node.device_type == "cpu") return;
  for (const auto& [name, amount] : MemberOf(resources, "limits").items()) {
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
  const json given = json::parse(options.pod, nullptr, /*allow_exceptions=*/false);
  json metadata = json::object();
  for (const char* part : {"labels", "annotations"}) {
    const json& texts = MemberOf(MemberOf(given, "metadata"), part);
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
  json pod_spec = MemberOf(given, kSpec);
  json& worker =
      pod_spec["containers"][static_cast<size_t>(WorkerIndex(MemberOf(pod_spec, "containers")))];
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
  AddSecurity(pod_spec, worker);
  AddResources(spec, worker);
  // The group of the pod reads the token where there is one.
  const bool has_group = MemberOf(pod_spec, "securityContext").contains("fsGroup");
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

std::string Text(const json& object) {
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

absl::Status CheckPod(const ProviderSpec& spec, const ManifestOptions& options) {
  Findings findings;
  if (options.pod.size() > kPodBytesMax) {
    return InvalidFields({{"pod", absl::StrCat("has ", options.pod.size(), " bytes; at most ",
                                               kPodBytesMax, " are taken")}});
  }
  const json pod = json::parse(options.pod, nullptr, /*allow_exceptions=*/false);
  if (!pod.is_object()) {
    return InvalidFields({{"pod", "is no JSON of a Pod or of a PodTemplateSpec"}});
  }
  for (const auto& [name, value] : pod.items()) {
    const bool is_kind = name == "apiVersion" || name == "kind";
    if (!is_kind && name != "metadata" && name != kSpec) {
      findings.Add(name, "is unknown; expected metadata and spec");
    }
  }
  const json& kind = MemberOf(pod, "kind");
  if (!kind.is_null() && kind != json("Pod") && kind != json("PodTemplateSpec")) {
    findings.Add("kind", absl::StrCat("is ", kind.dump(), "; expected Pod"));
  }
  if (findings.IsObject(MemberOf(pod, "metadata"), "metadata")) {
    CheckMetadata(options, MemberOf(pod, "metadata"), findings);
  }
  if (findings.IsObject(MemberOf(pod, kSpec), kSpec)) {
    CheckSpecOfPod(spec, MemberOf(pod, kSpec), findings);
  } else if (!pod.contains(kSpec)) {
    findings.Add(kSpec, "is missing; name at least a container with the image of the worker");
  }
  return findings.Result();
}

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
  return Text(pod);
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
  for (const json& variable : MemberOf(worker, "env")) variables.push_back(variable);
  worker["env"] = std::move(variables);
  json labels = LabelsOf(server_id, spec, pilot);
  labels[kQueueLabel] = options.queue;
  return Text(
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
  return Text({{"apiVersion", "v1"},
               {"kind", "Secret"},
               {"metadata", std::move(metadata)},
               {"type", "Opaque"},
               {"data", std::move(data)}});
}

}  // namespace trainyard::provision::kubernetes
