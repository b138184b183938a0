// Tests what becomes of an operator's pod.
#include "server/provision/kubernetes/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "server/provision/kubernetes/pod.h"

namespace trainyard::provision::kubernetes {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kPilotName[] = "ty-1a2b-gpu-7";
constexpr char kSmall[] = R"({"spec": {"containers": [{"image": "worker:1"}]}})";

ProviderSpec Spec() {
  ProviderSpec spec;
  spec.name = "gpu";
  spec.kind = ProviderKind::kKubernetes;
  spec.node = {4, "h200", 32, int64_t{64} << 30};
  spec.time_limit_us = kHourUs;
  return spec;
}

ManifestOptions Options(const std::string& pod = kSmall) {
  return {pod, "ml", "", {"--server=tls://here:7070", "--server_fingerprint=abc"}};
}

json Pod(const ProviderSpec& spec, const std::string& pod = kSmall, int32_t node = 0) {
  const ManifestOptions options = Options(pod);
  EXPECT_TRUE(CheckPod(spec, options).ok()) << CheckPod(spec, options);
  return json::parse(PodManifest("1a2b", spec, options, kPilotName, node));
}

// Returns "PATH why" of all violations.
std::vector<std::string> Violations(const ProviderSpec& spec, const std::string& pod) {
  std::vector<std::string> found;
  for (const FieldViolation& each : GetFieldViolations(CheckPod(spec, Options(pod)))) {
    found.push_back(absl::StrCat(each.field, " ", each.description));
  }
  return found;
}

std::string Violation(const std::string& pod) {
  const auto found = Violations(Spec(), pod);
  return found.size() == 1 ? found[0] : absl::StrCat(found.size(), " violations");
}

std::string WithSpec(const std::string& more) {
  return absl::StrCat(R"({"spec": {"containers": [{"image": "worker:1"}], )", more, "}}");
}
std::string WithContainer(const std::string& more) {
  return absl::StrCat(R"({"spec": {"containers": [{"image": "worker:1", )", more, "}]}}");
}

TEST(Manifest, APodSaysWhoseItIs) {
  const json pod = Pod(Spec());
  EXPECT_EQ(pod["kind"], "Pod");
  EXPECT_EQ(pod["metadata"]["name"], kPilotName);
  EXPECT_EQ(pod["metadata"]["namespace"], "ml");
  EXPECT_EQ(pod["metadata"]["labels"], (json{{"trainyard.dev/server", "1a2b"},
                                             {"trainyard.dev/provider", "gpu"},
                                             {"trainyard.dev/pilot", kPilotName},
                                             {"trainyard.dev/nodes", "1"},
                                             {"app.kubernetes.io/name", "trainyard"},
                                             {"app.kubernetes.io/component", "pilot"}}));
  EXPECT_EQ(pod["spec"]["activeDeadlineSeconds"], 3600);
  EXPECT_EQ(pod["spec"]["restartPolicy"], "Never");
  EXPECT_EQ(pod["spec"]["automountServiceAccountToken"], false);
  EXPECT_GE(pod["spec"]["terminationGracePeriodSeconds"], 320);
}

TEST(Manifest, TheWorkerIsToldWhereTheServerIs) {
  const json worker = Pod(Spec())["spec"]["containers"][0];
  EXPECT_EQ(
      worker["args"],
      (json{"--server=tls://here:7070", "--server_fingerprint=abc", "--name=ty-1a2b-gpu-7",
            "--join_token_file=/var/run/secrets/trainyard/token",
            "--state_dir=/var/lib/trainyard/worker", "--drain_on_stop=300s", "--run_as=anyone"}));
  EXPECT_EQ(worker["resources"],
            (json{{"requests", {{"cpu", "32"}, {"memory", "68719476736"}}},
                  {"limits", {{"memory", "68719476736"}, {"nvidia.com/gpu", "4"}}}}));
}

TEST(Manifest, AnOwnerAndProcessorsAreSaidToTheWorker) {
  ProviderSpec spec = Spec();
  spec.owner = "anna";
  spec.node = {2, "cpu", 8, 0};
  const json worker = Pod(spec)["spec"]["containers"][0];
  EXPECT_THAT(worker["args"], Contains("--jobs_of=anna"));
  EXPECT_THAT(worker["args"], Contains("--cpu_devices=2"));
  ASSERT_GE(worker["args"].size(), 2);
  EXPECT_EQ(worker["args"][worker["args"].size() - 2], "--nvml");
  EXPECT_EQ(worker["args"].back(), "");
  EXPECT_EQ(worker["resources"], (json{{"requests", {{"cpu", "8"}}}}));
}

TEST(Manifest, APodSeesItsOwnTokenAlone) {
  ProviderSpec spec = Spec();
  spec.nodes = 3;
  const json pod = Pod(spec, kSmall, 2);
  EXPECT_EQ(pod["metadata"]["name"], "ty-1a2b-gpu-7-n2");
  EXPECT_EQ(pod["metadata"]["labels"]["trainyard.dev/nodes"], "3");
  EXPECT_THAT(pod["spec"]["containers"][0]["args"], Contains("--name=ty-1a2b-gpu-7-n2"));
  EXPECT_EQ(pod["spec"]["volumes"][0]["secret"],
            (json{{"secretName", kPilotName},
                  {"items", json::array({{{"key", "token-2"}, {"path", "token"}}})},
                  {"defaultMode", 0440}}));
}

TEST(Manifest, WhatThePodSaysStays) {
  const json pod = Pod(Spec(), R"({
      "apiVersion": "v1", "kind": "Pod",
      "metadata": {"name": "mine", "namespace": "ml",
                   "labels": {"team": "vision", "app.kubernetes.io/name": "other"},
                   "annotations": {"a/b": "c"}},
      "spec": {
        "containers": [
          {"name": "logs", "image": "logs:1"},
          {"name": "worker", "image": "worker:1", "args": ["--dataset_dir=/data"],
           "securityContext": {"readOnlyRootFilesystem": true},
           "resources": {"requests": {"cpu": "2"}, "limits": {"memory": "8Gi", "amd.com/gpu": 4}},
           "volumeMounts": [{"name": "data", "mountPath": "/data"},
                            {"name": "own", "mountPath": "/var/lib/trainyard"},
                            {"name": "own", "mountPath": "/dev/shm"}]}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "imagenet"}},
                    {"name": "own", "emptyDir": {}}],
        "securityContext": {"runAsUser": 7},
        "automountServiceAccountToken": true, "terminationGracePeriodSeconds": 40,
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}})");
  EXPECT_EQ(pod["metadata"]["name"], kPilotName);
  EXPECT_EQ(pod["metadata"]["labels"]["team"], "vision");
  EXPECT_EQ(pod["metadata"]["labels"]["app.kubernetes.io/name"], "other");
  EXPECT_EQ(pod["metadata"]["annotations"], (json{{"a/b", "c"}}));
  const json& spec = pod["spec"];
  EXPECT_EQ(spec["containers"][0], (json{{"name", "logs"}, {"image", "logs:1"}}));
  const json& worker = spec["containers"][1];
  EXPECT_EQ(worker["args"][0], "--dataset_dir=/data");
  EXPECT_EQ(worker["resources"], (json{{"requests", {{"cpu", "2"}}},
                                       {"limits", {{"memory", "8Gi"}, {"amd.com/gpu", 4}}}}));
  EXPECT_EQ(worker["securityContext"], (json{{"readOnlyRootFilesystem", true}}));
  EXPECT_EQ(spec["securityContext"], (json{{"runAsUser", 7}}));
  EXPECT_EQ(spec["automountServiceAccountToken"], true);
  EXPECT_EQ(spec["terminationGracePeriodSeconds"], 40);
  EXPECT_EQ(spec["tolerations"][0]["key"], "nvidia.com/gpu");
  // Without a group of the pod, the user of the container has to read the token.
  ASSERT_EQ(spec["volumes"].size(), 3);
  EXPECT_EQ(spec["volumes"][2]["secret"]["defaultMode"], 0444);
  EXPECT_EQ(worker["volumeMounts"].size(), 4);
}

TEST(Manifest, APodThatSaysNothingIsRestricted) {
  const json spec = Pod(Spec())["spec"];
  EXPECT_EQ(spec["securityContext"]["runAsNonRoot"], true);
  EXPECT_EQ(spec["securityContext"]["seccompProfile"], (json{{"type", "RuntimeDefault"}}));
  EXPECT_EQ(spec["containers"][0]["securityContext"],
            (json{{"allowPrivilegeEscalation", false}, {"capabilities", {{"drop", {"ALL"}}}}}));
  std::vector<std::string> paths;
  for (const json& mount : spec["containers"][0]["volumeMounts"])
    paths.push_back(mount["mountPath"]);
  EXPECT_THAT(paths, ElementsAre("/var/run/secrets/trainyard", "/var/lib/trainyard", "/dev/shm"));
  EXPECT_EQ(spec["volumes"][2]["emptyDir"], (json{{"medium", "Memory"}}));
}

TEST(Manifest, WhatCannotBeIsRefusedWithItsPath) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[]", "pod is no JSON of a Pod"},
      {"{", "pod is no JSON of a Pod"},
      {R"({"kind": "Deployment", "spec": {"containers": [{"image": "a"}]}})",
       "pod.kind is \"Deployment\"; expected Pod"},
      {R"({"sepc": {}, "spec": {"containers": [{"image": "a"}]}})", "pod.sepc is unknown"},
      {R"({"metadata": {}})", "pod.spec is missing"},
      {R"({"spec": 3})", "pod.spec is no mapping"},
      {R"({"spec": {"containers": []}})", "pod.spec.containers has no container 'worker'"},
      {R"({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}})",
       "pod.spec.containers has no container 'worker'"},
      {R"({"spec": {"containers": [{}]}})", "pod.spec.containers[0].image is missing"},
      {R"({"spec": {"containers": ["a"]}})", "pod.spec.containers[0] is no mapping"},
      {WithContainer(R"("securityContext": {"privileged": true})"),
       "pod.spec.containers[0].securityContext.privileged is true"},
      {WithSpec(R"("initContainers": [{"securityContext": {"privileged": true}}])"),
       "pod.spec.initContainers[0].securityContext.privileged is true"},
      {WithContainer(R"("securityContext": {"capabilities": {"add": ["CHOWN", "SYS_ADMIN"]}})"),
       "pod.spec.containers[0].securityContext.capabilities.add[1] 'SYS_ADMIN' makes"},
      {WithSpec(R"("hostPID": true)"), "pod.spec.hostPID is true"},
      {WithSpec(R"("hostIPC": true)"), "pod.spec.hostIPC is true"},
      {WithSpec(R"("restartPolicy": "Always")"), "pod.spec.restartPolicy has to be Never"},
      {WithSpec(R"("activeDeadlineSeconds": 7)"), "pod.spec.activeDeadlineSeconds is set from"},
      {WithSpec(R"("ephemeralContainers": [])"), "pod.spec.ephemeralContainers cannot"},
      {WithSpec(R"("volumes": {})"), "pod.spec.volumes is no list"},
      {WithContainer(R"("args": ["--name=me"])"),
       "pod.spec.containers[0].args[0] '--name' is set by the server"},
      {WithContainer(R"("args": ["--cpu_devices", "4"])"), "args[0] '--cpu_devices' is set"},
      {WithContainer(R"("command": ["trainyard-worker", "--state_dir=/x"])"),
       "pod.spec.containers[0].command[1] '--state_dir' is set"},
      {WithContainer(R"("args": [3])"), "pod.spec.containers[0].args[0] is no text"},
      {WithContainer(R"("livenessProbe": {})"), "livenessProbe could kill"},
      {WithContainer(R"("env": {})"), "pod.spec.containers[0].env is no list"},
      {WithContainer(R"("resources": {"limits": {"nvidia.com/gpu": 2}})"),
       "limits.nvidia.com/gpu makes 2 devices, and the provider has 4"},
      {WithContainer(R"("resources": {"limits": {"nvidia.com/gpu": "many"}})"),
       "limits.nvidia.com/gpu \"many\" is no number"},
      {R"({"metadata": {"labels": {"trainyard.dev/pilot": "x"}}, "spec": {"containers": [{"image": "a"}]}})",
       "pod.metadata.labels.trainyard.dev/pilot is set by the server"},
      {R"({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "x"}}, "spec": {"containers": [{"image": "a"}]}})",
       "is set from --queue"},
      {R"({"metadata": {"namespace": "other"}, "spec": {"containers": [{"image": "a"}]}})",
       "pod.metadata.namespace is \"other\", and pilots are in 'ml'"},
      {R"({"metadata": {"finalizers": []}, "spec": {"containers": [{"image": "a"}]}})",
       "pod.metadata.finalizers cannot be given"},
  };
  for (const auto& [pod, why] : cases) EXPECT_THAT(Violation(pod), HasSubstr(why)) << pod;
  const std::string large(kPodBytesMax + 1, ' ');
  EXPECT_THAT(Violation(large), HasSubstr("bytes; at most"));
}

TEST(Manifest, WhoeverCouldActAsRootOnTheNodeIsRefused) {
  const auto context = [](const std::string& what) {
    return WithContainer(absl::StrCat(R"("securityContext": {)", what, "}"));
  };
  const auto capability = [&](const std::string& name) {
    return context(absl::StrCat(R"("capabilities": {"add": [")", name, R"("]})"));
  };
  std::vector<std::pair<std::string, std::string>> cases = {
      {context(R"("privileged": "true")"), "securityContext.privileged is \"true\""},
      {context(R"("procMount": "Unmasked")"), "procMount is \"Unmasked\""},
      {context(R"("windowsOptions": {"hostProcess": true})"), "windowsOptions is for another"},
      {context(R"("seccompProfile": {"type": "Unconfined"})"), "seccompProfile.type is Unconfined"},
      {context(R"("appArmorProfile": {"type": "Unconfined"})"), "appArmorProfile.type is Unconf"},
      {context(R"("seLinuxOptions": {"type": "spc_t"})"), "seLinuxOptions.type is \"spc_t\""},
      {context(R"("capabilities": {"add": [3]})"), "capabilities.add[0] 3 makes"},
      {WithSpec(R"("securityContext": {"seccompProfile": {"type": "Unconfined"}})"),
       "pod.spec.securityContext.seccompProfile.type is Unconfined"},
      {WithSpec(R"("hostNetwork": true)"), "pod.spec.hostNetwork is true"},
      {WithSpec(R"("hostPID": "true")"), "pod.spec.hostPID is \"true\""},
      {WithSpec(R"("serviceAccountName": "trainyard-server")"),
       "pod.spec.serviceAccountName is the account of the server"},
      {WithSpec(R"("serviceAccount": "trainyard-server")"),
       "pod.spec.serviceAccount is the account of the server"},
  };
  for (const char* name : {"ALL", "all", "SYS_ADMIN", "sys_admin", "CAP_SYS_ADMIN", "cap_sys_admin",
                           "DAC_READ_SEARCH", "BPF", "NET_ADMIN", "MKNOD", "SYS_BOOT", "SYS_PTRACE",
                           "SYS_MODULE", "SYS_RAWIO", "PERFMON", "SYSLOG", "CAP_CAP_CHOWN", ""}) {
    cases.emplace_back(capability(name), absl::StrCat("capabilities.add[0] '", name, "' makes"));
  }
  for (const auto& [pod, why] : cases) EXPECT_THAT(Violation(pod), HasSubstr(why)) << pod;
  for (const char* name : {"chown", "CAP_IPC_LOCK", "NET_BIND_SERVICE"}) {
    EXPECT_THAT(Violations(Spec(), capability(name)), IsEmpty()) << name;
  }
  EXPECT_THAT(Violations(Spec(), context(R"("privileged": false, "procMount": "Default",
      "runAsUser": 0, "seLinuxOptions": {"type": "container_t"})")),
              IsEmpty());
  EXPECT_THAT(Violations(Spec(), WithSpec(R"("serviceAccountName": "vision", "hostPID": false,
      "hostNetwork": false)")),
              IsEmpty());
}

// Returns a pod that mounts a folder of its node.
std::string WithFolder(const std::string& source, const std::string& mount,
                       const std::string& context, const std::string& pod_context) {
  json pod = {
      {"spec",
       {{"containers",
         {{{"image", "worker:1"}, {"volumeMounts", {{{"name", "data"}, {"mountPath", "/data"}}}}}}},
        {"volumes", {{{"name", "data"}, {"hostPath", json::parse(source)}}}}}}};
  json& container = pod["spec"]["containers"][0];
  container["volumeMounts"][0].update(json::parse(mount));
  if (!context.empty()) container["securityContext"] = json::parse(context);
  if (!pod_context.empty()) pod["spec"]["securityContext"] = json::parse(pod_context);
  return pod.dump();
}

TEST(Manifest, DataSetsOfTheNodeAreReadByWhoeverIsNotRoot) {
  constexpr char kData[] = R"({"path": "/srv/data"})";
  constexpr char kReadOnly[] = R"({"readOnly": true})";
  constexpr char kNoRoot[] = R"({"allowPrivilegeEscalation": false})";
  const json pod = Pod(Spec(), WithFolder(kData, kReadOnly, "", ""));
  EXPECT_EQ(pod["spec"]["volumes"][0]["hostPath"]["path"], "/srv/data");
  EXPECT_EQ(pod["spec"]["securityContext"]["runAsNonRoot"], true);
  for (const char* fine : {R"({"path": "/srv/data", "type": "DirectoryOrCreate"})",
                           R"({"path": "/variants/"})", R"({"path": "/data/etc"})"}) {
    EXPECT_THAT(Violations(Spec(), WithFolder(fine, kReadOnly, kNoRoot, "")), IsEmpty()) << fine;
  }
  EXPECT_THAT(Violations(Spec(), WithFolder(kData, kReadOnly, kNoRoot,
                                            R"({"runAsNonRoot": true, "runAsUser": 7})")),
              IsEmpty());
  const std::vector<std::pair<std::string, std::string>> cases = {
      {WithFolder(kData, "{}", "", ""), "volumeMounts[0].readOnly has to be true"},
      {WithFolder(kData, R"({"readOnly": "true"})", "", ""), "readOnly has to be true"},
      {WithFolder(kData, kReadOnly, kNoRoot, R"({"runAsUser": 7})"), "runAsNonRoot has to be true"},
      {WithFolder(kData, kReadOnly, kNoRoot, R"({"runAsNonRoot": true, "runAsUser": 0})"),
       "runAsNonRoot has to be true"},
      {WithFolder(kData, kReadOnly, R"({"runAsNonRoot": false, "allowPrivilegeEscalation": false})",
                  ""),
       "runAsNonRoot has to be true"},
      {WithFolder(kData, kReadOnly, R"({"readOnlyRootFilesystem": true})", ""),
       "allowPrivilegeEscalation has to be false"},
      {WithFolder(R"({"path": "/srv/data", "type": "Socket"})", kReadOnly, "", ""),
       "hostPath.type is \"Socket\""},
      {WithFolder("{}", kReadOnly, "", ""), "hostPath.path is null"},
  };
  for (const auto& [given, why] : cases) EXPECT_THAT(Violation(given), HasSubstr(why)) << given;
  for (const char* path :
       {"/", "//", "/.", "/etc", "//etc/", "/./etc/kubernetes", "/run", "/var", "/var/run/x",
        "/var/lib", "/var/lib/kubelet/pods", "/proc/1", "/dev", "/srv/../etc", "srv/data"}) {
    const std::string source = json{{"path", path}}.dump();
    EXPECT_THAT(Violation(WithFolder(source, kReadOnly, "", "")),
                HasSubstr("which is no folder of data alone"))
        << path;
  }
}

TEST(Manifest, WhatIsOfAnotherKindIsRefusedBeforeItIsUsed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {WithContainer(R"("resources": {"requests": 4})"), "resources.requests is no mapping"},
      {WithContainer(R"("resources": {"requests": "4"})"), "resources.requests is no mapping"},
      {WithContainer(R"("resources": {"requests": [4]})"), "resources.requests is no mapping"},
      {WithContainer(R"("resources": {"limits": [4]})"), "resources.limits is no mapping"},
      {WithContainer(R"("resources": [])"), "resources is no mapping"},
      {WithContainer(R"("resources": {"requests": {"cpu": {}}})"),
       "resources.requests.cpu is no text or number"},
      {WithContainer(R"("resources": {"limits": {"memory": true}})"),
       "resources.limits.memory is no text or number"},
      {WithContainer(R"("resources": {"limits": {"nvidia.com/gpu": 9223372036854775807,
                                                  "amd.com/gpu": 9223372036854775807}})"),
       "is no number of devices"},
      {WithContainer(R"("env": [3])"), "containers[0].env[0] is no mapping"},
      {WithContainer(R"("volumeMounts": [null])"), "containers[0].volumeMounts[0] is no mapping"},
      {WithContainer(R"("securityContext": {"capabilities": ["ALL"]})"),
       "securityContext.capabilities is no mapping"},
      {WithSpec(R"("volumes": ["data"])"), "spec.volumes[0] is no mapping"},
      {WithSpec(R"("initContainers": [null])"), "spec.initContainers[0] is no mapping"},
      {WithSpec(R"("securityContext": [])"), "spec.securityContext is no mapping"},
      {R"({"spec": null})", "pod.spec is missing"},
      {R"({"spec": {"containers": [null]}})", "pod.spec.containers[0] is no mapping"},
      {R"({"metadata": {"labels": {"a": 1}}, "spec": {"containers": [{"image": "a"}]}})",
       "pod.metadata.labels.a is no text"},
      {R"({"metadata": {"annotations": []}, "spec": {"containers": [{"image": "a"}]}})",
       "pod.metadata.annotations is no mapping"},
  };
  for (const auto& [pod, why] : cases) EXPECT_THAT(Violation(pod), HasSubstr(why)) << pod;
}

TEST(Manifest, ATextThatIsNestedTooDeepIsNotRead) {
  const auto nested = [](size_t depth) {
    return WithContainer(absl::StrCat(R"("x": ")", R"([[\"[[", "y": )", std::string(depth, '['),
                                      std::string(depth, ']')));
  };
  // The list is in a container of a list of the spec of the pod.
  EXPECT_THAT(Violations(Spec(), nested(kPodDepthMax - 4)), IsEmpty());
  EXPECT_THAT(Violation(nested(kPodDepthMax - 3)), HasSubstr("nested more than 32 levels"));
  EXPECT_THAT(Violation(nested(kPodBytesMax / 2 - 100)), HasSubstr("nested more than"));
}

TEST(Manifest, NullIsTheSameAsAbsent) {
  const std::string pod = R"({"metadata": {"labels": null, "annotations": null}, "spec": {
      "securityContext": null, "volumes": null, "containers": [{"image": "worker:1",
          "securityContext": null, "args": null, "resources": {"limits": null}}]}})";
  EXPECT_EQ(Pod(Spec(), pod), Pod(Spec()));
}

TEST(Manifest, ManyMistakesMakeAShortMessage) {
  std::string words;
  for (int i = 0; i < 10'000; ++i) absl::StrAppend(&words, i == 0 ? "" : ",", "1");
  const std::string long_name(10'000, 'x');
  const absl::Status status =
      CheckPod(Spec(), Options(WithContainer(absl::StrCat(R"("args": [)", words, "]"))));
  EXPECT_LT(status.message().size(), 32'000);
  EXPECT_LT(Violation(absl::StrCat("{\"", long_name,
                                   R"(": 1, "spec": {"containers": [{"image": "a"}]}})"))
                .size(),
            1000);
}

TEST(Manifest, AllMistakesAreToldAtOnce) {
  EXPECT_EQ(Violations(Spec(), WithSpec(R"("hostPID": true, "restartPolicy": "Always")")).size(),
            2);
}

TEST(Manifest, DevicesOfSeveralSizesAddUp) {
  EXPECT_THAT(Violations(Spec(), WithContainer(R"("resources": {"limits": {
      "nvidia.com/mig-1g.5gb": 3, "nvidia.com/mig-2g.10gb": "1", "rdma/hca": 8}})")),
              IsEmpty());
  ProviderSpec spec = Spec();
  spec.node.device_type = "cpu";
  EXPECT_THAT(Violations(spec, WithContainer(R"("resources": {"limits": {"nvidia.com/gpu": 4}})")),
              ElementsAre(HasSubstr("are of the type cpu")));
  // A network adapter is no device of jobs, so that the GPUs are asked for beside it.
  const json pod = Pod(Spec(), WithContainer(R"("resources": {"limits": {"rdma/hca": 1}})"));
  EXPECT_EQ(pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"], "4");
}

TEST(Manifest, AJobBeginsAsAWhole) {
  ProviderSpec spec = Spec();
  spec.nodes = 3;
  ManifestOptions options = Options(WithContainer(R"("env": [{"name": "A", "value": "b"}])"));
  options.queue = "team";
  const json job = json::parse(JobManifest("1a2b", spec, options, kPilotName));
  EXPECT_EQ(job["apiVersion"], "batch/v1");
  EXPECT_EQ(job["metadata"]["name"], kPilotName);
  EXPECT_EQ(job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "team");
  EXPECT_EQ(job["metadata"]["labels"]["trainyard.dev/pilot"], kPilotName);
  const json& how = job["spec"];
  EXPECT_EQ(how["completionMode"], "Indexed");
  EXPECT_EQ(how["suspend"], true);
  EXPECT_EQ(how["parallelism"], 3);
  EXPECT_EQ(how["completions"], 3);
  EXPECT_EQ(how["backoffLimit"], 0);
  EXPECT_EQ(how["activeDeadlineSeconds"], 3600);
  const json& pod = how["template"];
  EXPECT_EQ(pod["metadata"]["labels"]["trainyard.dev/pilot"], kPilotName);
  EXPECT_FALSE(pod["metadata"].contains("name"));
  EXPECT_FALSE(pod["spec"].contains("activeDeadlineSeconds"));
  const json& worker = pod["spec"]["containers"][0];
  EXPECT_EQ(worker["env"][0]["name"], "TRAINYARD_PILOT_NODE");
  EXPECT_EQ(worker["env"][0]["valueFrom"]["fieldRef"]["fieldPath"],
            "metadata.annotations['batch.kubernetes.io/job-completion-index']");
  EXPECT_EQ(worker["env"][1]["name"], "A");
  EXPECT_THAT(worker["args"], Contains("--name=ty-1a2b-gpu-7-n$(TRAINYARD_PILOT_NODE)"));
  EXPECT_THAT(
      worker["args"],
      Contains("--join_token_file=/var/run/secrets/trainyard/token-$(TRAINYARD_PILOT_NODE)"));
  EXPECT_EQ(pod["spec"]["volumes"][0]["secret"]["items"].size(), 3);
  spec.nodes = 1;
  const json single = json::parse(JobManifest("1a2b", spec, options, kPilotName));
  EXPECT_THAT(single["spec"]["template"]["spec"]["containers"][0]["args"],
              Contains("--name=ty-1a2b-gpu-7"));
}

TEST(Manifest, TokensAreOwnedByWhatUsesThem) {
  const json secret = json::parse(
      SecretManifest("1a2b", Spec(), kPilotName, {"first", "second"}, {{"v1", "Pod", "p", "u"}}));
  EXPECT_EQ(secret["kind"], "Secret");
  EXPECT_EQ(secret["metadata"]["name"], kPilotName);
  EXPECT_EQ(secret["data"], (json{{"token-0", "Zmlyc3Q="}, {"token-1", "c2Vjb25k"}}));
  EXPECT_EQ(secret["metadata"]["ownerReferences"],
            json::array({{{"apiVersion", "v1"}, {"kind", "Pod"}, {"name", "p"}, {"uid", "u"}}}));
  const std::string pod = PodManifest("1a2b", Spec(), Options(), kPilotName, 0);
  EXPECT_THAT(pod, Not(HasSubstr("Zmlyc3Q")));
}

}  // namespace
}  // namespace trainyard::provision::kubernetes
