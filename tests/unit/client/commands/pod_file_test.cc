// Tests that a pod's file means what it means to kubectl.
#include "client/commands/pod_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/testing/temp_dir.h"

namespace trainyard::commands {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TEST(PodFile, EachWordHasItsType) {
  const testing::TempDir folder;
  const auto text = ReadPodFile(folder.Write("pod.yaml", R"(
spec:
  containers:
    - image: worker:1
      args: [--dataset_dir=/data, "1", yes]
      resources: {limits: {nvidia.com/gpu: 1, memory: 8Gi, cpu: 1.5, x: 1e3, y: -2}}
  volumes: [{secret: {defaultMode: 0440, items: [{mode: 0o400}]}}]
  hostNetwork: false
  automountServiceAccountToken: true
  affinity: ~
  priority:
  ip: 10.0.0.1
  range: 1-2
)"));
  ASSERT_TRUE(text.ok()) << text.status();
  const json spec = json::parse(*text)["spec"];
  EXPECT_EQ(spec["containers"][0]["image"], "worker:1");
  EXPECT_EQ(spec["containers"][0]["args"], (json{"--dataset_dir=/data", "1", "yes"}));
  EXPECT_EQ(
      spec["containers"][0]["resources"]["limits"],
      (json{{"nvidia.com/gpu", 1}, {"memory", "8Gi"}, {"cpu", 1.5}, {"x", 1000.0}, {"y", -2}}));
  EXPECT_EQ(spec["volumes"][0]["secret"],
            (json{{"defaultMode", 288}, {"items", json::array({{{"mode", 256}}})}}));
  EXPECT_EQ(spec["hostNetwork"], false);
  EXPECT_EQ(spec["automountServiceAccountToken"], true);
  EXPECT_EQ(spec["affinity"], nullptr);
  EXPECT_EQ(spec["priority"], nullptr);
  EXPECT_EQ(spec["ip"], "10.0.0.1");
  EXPECT_EQ(spec["range"], "1-2");
}

TEST(PodFile, MistakesAreToldWithTheirPlace) {
  const testing::TempDir folder;
  const std::string path = folder.Write("pod.yaml", "spec:\n  a: 1\n  a: 2\n");
  EXPECT_THAT(ReadPodFile(path).status().message(), HasSubstr(path + ":3:3: "));
  EXPECT_TRUE(absl::IsNotFound(ReadPodFile(folder.File("none")).status()));
}

}  // namespace
}  // namespace trainyard::commands
