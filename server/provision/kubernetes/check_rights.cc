// Names what is permitted, and not what is known to be bad, wherever Kubernetes may learn new
// words.
#include "server/provision/kubernetes/check_rights.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace trainyard::provision::kubernetes {
namespace {

using nlohmann::json;

// The user of the worker's image.
constexpr int64_t kImageUser = 10001;
// The profile `baseline` takes these, but for MKNOD, which makes devices. Two are added that memory
// for network adapters and the placement on processors need.
constexpr absl::string_view kCapabilities[] = {
    "AUDIT_WRITE",      "CHOWN",   "DAC_OVERRIDE", "FOWNER",  "FSETID", "IPC_LOCK",   "KILL",
    "NET_BIND_SERVICE", "SETFCAP", "SETGID",       "SETPCAP", "SETUID", "SYS_CHROOT", "SYS_NICE"};
// Sockets of daemons, devices, secrets, and what the node boots from lie in these.
constexpr absl::string_view kSystemFolders[] = {"boot",
                                                "dev",
                                                "etc",
                                                "proc",
                                                "root",
                                                "run",
                                                "sys",
                                                "var/lib/containerd",
                                                "var/lib/containers",
                                                "var/lib/docker",
                                                "var/lib/etcd",
                                                "var/lib/kubelet",
                                                "var/lib/rancher",
                                                "var/log",
                                                "var/run"};
constexpr absl::string_view kHostPathTypes[] = {"", "Directory", "DirectoryOrCreate", "File",
                                                "FileOrCreate"};
constexpr const char* kContainerLists[] = {"containers", "initContainers"};

template <typename List>
bool Has(const List& list, absl::string_view word) {
  return std::find(std::begin(list), std::end(list), word) != std::end(list);
}

// Finds what must not be there unless it is one value.
void CheckOnly(const json& object, const std::string& path, const char* name, const json& value,
               absl::string_view why, Findings& findings) {
  const json& given = PodPart(object, name);
  if (given.is_null() || given == value) return;
  findings.Add(absl::StrCat(path, ".", name), absl::StrCat("is ", PodJson(given), why));
}

void CheckCapabilities(const json& context, const std::string& path, Findings& findings) {
  const json& capabilities = PodPart(context, "capabilities");
  const std::string folder = absl::StrCat(path, ".capabilities");
  if (!findings.IsObject(capabilities, folder)) return;
  const json& added = PodPart(capabilities, "add");
  if (!findings.IsList(added, folder + ".add")) return;
  for (size_t i = 0; i < added.size(); ++i) {
    // A runtime takes them in any case, and with the kernel's prefix.
    const std::string upper = absl::AsciiStrToUpper(PodText(added[i]));
    if (Has(kCapabilities, absl::StripPrefix(upper, "CAP_"))) continue;
    findings.Add(absl::StrCat(folder, ".add[", i, "]"),
                 absl::StrCat(added[i].is_string() ? absl::StrCat("'", PodText(added[i]), "'")
                                                   : PodJson(added[i]),
                              " makes a container more powerful on its node than it may be; "
                              "expected one of ",
                              absl::StrJoin(kCapabilities, ", ")));
  }
}

// Looks at the security context of the pod or of a container.
void CheckContext(const json& context, const std::string& path, Findings& findings) {
  if (!findings.IsObject(context, path)) return;
  CheckOnly(context, path, "privileged", false,
            ", and such a container sees all devices and files of its node; ask for devices by "
            "resources.limits",
            findings);
  CheckOnly(context, path, "procMount", "Default", ", and shows more of the kernel than it may",
            findings);
  if (context.contains("windowsOptions")) {
    findings.Add(path + ".windowsOptions", "is for another system than the worker's");
  }
  for (const char* profile : {"seccompProfile", "appArmorProfile"}) {
    if (PodText(PodPart(PodPart(context, profile), "type")) == "Unconfined") {
      findings.Add(absl::StrCat(path, ".", profile, ".type"),
                   "is Unconfined; expected RuntimeDefault or Localhost");
    }
  }
  const json& type = PodPart(PodPart(context, "seLinuxOptions"), "type");
  if (!type.is_null() && !absl::StartsWith(PodText(type), "container_")) {
    findings.Add(path + ".seLinuxOptions.type",
                 absl::StrCat("is ", PodJson(type),
                              "; expected one for containers, such as "
                              "container_t"));
  }
  CheckCapabilities(context, path, findings);
}

// Returns true for a folder from which a program could take over the node, or that has one in it.
bool IsOfSystem(const std::string& path) {
  std::vector<absl::string_view> words = absl::StrSplit(path, '/', absl::SkipEmpty());
  std::erase(words, ".");
  const std::string plain = absl::StrCat(absl::StrJoin(words, "/"), "/");
  return std::any_of(std::begin(kSystemFolders), std::end(kSystemFolders),
                     [&](absl::string_view folder) {
                       const std::string system = absl::StrCat(folder, "/");
                       return absl::StartsWith(plain, system) || absl::StartsWith(system, plain);
                     }) ||
         words.empty() || Has(words, "..") || !absl::StartsWith(path, "/");
}

// Returns the names of the volumes that are folders of the node.
std::set<std::string> CheckVolumes(const json& volumes, Findings& findings) {
  std::set<std::string> of_node;
  for (size_t i = 0; i < volumes.size(); ++i) {
    const json& source = PodPart(volumes[i], "hostPath");
    const std::string path = absl::StrCat("spec.volumes[", i, "].hostPath");
    if (!findings.IsObject(source, path)) continue;
    of_node.insert(PodText(PodPart(volumes[i], "name")));
    const json& folder = PodPart(source, "path");
    if (IsOfSystem(PodText(folder))) {
      findings.Add(path + ".path",
                   absl::StrCat("is ", PodJson(folder),
                                ", which is no folder of data alone; sockets, devices or secrets "
                                "of the node are in it"));
    }
    const json& type = PodPart(source, "type");
    if (!type.is_null() && (!type.is_string() || !Has(kHostPathTypes, PodText(type)))) {
      findings.Add(path + ".type",
                   absl::StrCat("is ", PodJson(type), "; expected a directory or a file"));
    }
  }
  return of_node;
}

// Returns a setting of a container, or else that of its pod.
const json& Setting(const json& container, const json& pod_context, const char* name) {
  const json& own = PodPart(PodPart(container, "securityContext"), name);
  return own.is_null() ? PodPart(pod_context, name) : own;
}

// Looks at what a container does with the folders of the node.
void CheckMounts(const json& container, const std::string& path, const json& pod_context,
                 const std::set<std::string>& of_node, Findings& findings) {
  const json& mounts = PodPart(container, "volumeMounts");
  if (!findings.IsListOfObjects(mounts, path + ".volumeMounts")) return;
  bool has_any = false;
  for (size_t i = 0; i < mounts.size(); ++i) {
    if (!of_node.contains(PodText(PodPart(mounts[i], "name")))) continue;
    has_any = true;
    if (PodPart(mounts[i], "readOnly") == json(true)) continue;
    findings.Add(absl::StrCat(path, ".volumeMounts[", i, "].readOnly"),
                 "has to be true, since it mounts a folder of the node");
  }
  if (!has_any) return;
  const std::string context = path + ".securityContext";
  const json& user = Setting(container, pod_context, "runAsUser");
  if (Setting(container, pod_context, "runAsNonRoot") != json(true) || user == json(0)) {
    findings.Add(context + ".runAsNonRoot",
                 "has to be true with a user that is not 0, here or in the pod's "
                 "securityContext, since the container mounts a folder of the node");
  }
  if (PodPart(PodPart(container, "securityContext"), "allowPrivilegeEscalation") != json(false)) {
    findings.Add(context + ".allowPrivilegeEscalation",
                 "has to be false, since the container mounts a folder of the node");
  }
}

}  // namespace

void AddRights(json& pod_spec, json& worker) {
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

void CheckRights(const json& pod_spec, Findings& findings) {
  for (const char* field : {"hostPID", "hostIPC", "hostNetwork"}) {
    CheckOnly(pod_spec, kSpec, field, false, ", and shows the node to the pod", findings);
  }
  for (const char* field : {"serviceAccountName", "serviceAccount"}) {
    if (PodText(PodPart(pod_spec, field)) == kServerAccount) {
      findings.Add(absl::StrCat(kSpec, ".", field),
                   "is the account of the server, as which programs of users must not act");
    }
  }
  json whole = pod_spec;
  const int index = WorkerIndex(PodPart(whole, "containers"));
  if (index >= 0) AddRights(whole, whole["containers"][static_cast<size_t>(index)]);
  const json& pod_context = PodPart(whole, "securityContext");
  CheckContext(pod_context, "spec.securityContext", findings);
  const std::set<std::string> of_node = CheckVolumes(PodPart(whole, "volumes"), findings);
  for (const char* list : kContainerLists) {
    const json& containers = PodPart(whole, list);
    for (size_t i = 0; i < containers.size(); ++i) {
      const std::string path = absl::StrCat("spec.", list, "[", i, "]");
      CheckContext(PodPart(containers[i], "securityContext"), path + ".securityContext", findings);
      CheckMounts(containers[i], path, pod_context, of_node, findings);
    }
  }
}

}  // namespace trainyard::provision::kubernetes
