#include "worker/agent/device_inventory.h"

#include <unistd.h>

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"
#include "worker/agent/nvml.h"

namespace trainyard::agent {
namespace {

using ::testing::ElementsAre;

TEST(DivideCpus, GivesEachDeviceProcessorsOfItsOwnAndAnEqualShareOfMemory) {
  const auto devices = DivideCpus({0, 2, 4, 6, 8}, 1000, {2, 2});
  ASSERT_TRUE(devices.ok()) << devices.status();
  ASSERT_EQ(devices->size(), 2u);
  EXPECT_EQ((*devices)[0].name, "cpu-0");
  EXPECT_EQ((*devices)[1].name, "cpu-1");
  EXPECT_THAT((*devices)[0].cpus, ElementsAre(0, 2));
  EXPECT_THAT((*devices)[1].cpus, ElementsAre(4, 6));
  EXPECT_EQ((*devices)[1].threads, 2);
  EXPECT_EQ((*devices)[1].type, "cpu");
  EXPECT_EQ((*devices)[1].memory_bytes, 500);
}

TEST(DivideCpus, WithoutOptionsThereIsOneDeviceAProcessor) {
  const auto devices = DivideCpus({3, 5}, 0, {});
  ASSERT_TRUE(devices.ok());
  ASSERT_EQ(devices->size(), 2u);
  EXPECT_THAT((*devices)[1].cpus, ElementsAre(5));
}

TEST(DivideCpus, ThreadsAloneAndDevicesAloneShareAllProcessors) {
  EXPECT_EQ(DivideCpus({0, 1, 2, 3}, 0, {0, 2})->size(), 2u);
  const auto devices = DivideCpus({0, 1, 2, 3}, 0, {1, 0});
  ASSERT_EQ(devices->size(), 1u);
  EXPECT_EQ((*devices)[0].threads, 4);
}

TEST(DivideCpus, DevicesThatShareProcessorsAreBoundToNone) {
  const auto devices = DivideCpus({0, 1}, 800, {8, 0, true});
  ASSERT_TRUE(devices.ok()) << devices.status();
  ASSERT_EQ(devices->size(), 8u);
  EXPECT_THAT((*devices)[7].cpus, ElementsAre());
  EXPECT_EQ((*devices)[7].threads, 1);
  EXPECT_EQ((*devices)[7].memory_bytes, 100);
  EXPECT_FALSE(DivideCpus({0, 1}, 800, {-1, 0, true}).ok());
}

TEST(DivideCpus, RefusesMoreThanThereIs) {
  for (const CpuDeviceOptions options :
       {CpuDeviceOptions{3, 1}, CpuDeviceOptions{1, 3}, CpuDeviceOptions{0, 3},
        CpuDeviceOptions{-1, 1}, CpuDeviceOptions{3, 0}}) {
    EXPECT_EQ(DivideCpus({0, 1}, 0, options).status().code(), absl::StatusCode::kInvalidArgument)
        << options.count << " x " << options.threads_per_device;
  }
  EXPECT_FALSE(DivideCpus({}, 0, {}).ok());
}

TEST(AllowedCpus, NamesAtLeastTheOneWeRunOn) {
  EXPECT_FALSE(AllowedCpus().empty());
}

TEST(DeviceTypeOf, IsThePlainNameOfTheChip) {
  EXPECT_EQ(DeviceTypeOf("NVIDIA H200"), "h200");
  EXPECT_EQ(DeviceTypeOf("NVIDIA H100 80GB HBM3"), "h100");
  EXPECT_EQ(DeviceTypeOf("NVIDIA A100-SXM4-40GB"), "a100");
  EXPECT_EQ(DeviceTypeOf("NVIDIA GeForce GTX 1080 Ti"), "gtx-1080-ti");
  EXPECT_EQ(DeviceTypeOf("Tesla V100-PCIE-16GB"), "v100");
  EXPECT_EQ(DeviceTypeOf(""), "gpu");
}

TEST(Nvml, ListsGpusOfTheLibrary) {
  const auto nvml = Nvml::Open(FAKE_NVML);
  ASSERT_TRUE(nvml.ok()) << nvml.status();
  const auto gpus = (*nvml)->ListGpus();
  ASSERT_TRUE(gpus.ok()) << gpus.status();
  const std::vector<Device> devices = GpuDevices(*gpus);
  ASSERT_EQ(devices.size(), 5u);
  EXPECT_EQ(devices[0].name, "GPU-aaaa");
  EXPECT_EQ(devices[0].type, "h200");
  EXPECT_EQ(devices[0].memory_bytes, int64_t{150} << 30);
  EXPECT_EQ(devices[1].type, "gtx-1080-ti");
  EXPECT_THAT(*(*nvml)->ComputeProcesses("GPU-aaaa"), ElementsAre());
  EXPECT_THAT(*(*nvml)->ComputeProcesses("GPU-bbbb"), ElementsAre(4711));
  EXPECT_FALSE((*nvml)->ComputeProcesses("GPU-ffff").ok());
  std::vector<int> islands;
  for (const Device& device : devices) islands.push_back(device.island);
  EXPECT_THAT(islands, ElementsAre(1, 0, 1, 2, 2));
}

TEST(Nvml, IsNotFoundWhereThereIsNoLibraryAndRefusedWhereItIsAnother) {
  EXPECT_EQ(Nvml::Open("libno-such-library.so.1").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Nvml::Open("libm.so.6").status().code(), absl::StatusCode::kUnavailable);
}

TEST(NumberIslands, JoinsWhatIsLinkedThroughOthersAndLeavesOutWhatIsNot) {
  // A ring of four as 0-4-1-3, 2 alone.
  const std::set<std::pair<int, int>> links = {{0, 4}, {1, 4}, {1, 3}, {0, 3}};
  const auto linked = [&links](int a, int b) { return links.contains(std::minmax(a, b)); };
  EXPECT_THAT(NumberIslands(5, linked), ElementsAre(1, 1, 0, 1, 1));
  // Behind one switch all reach all.
  EXPECT_THAT(NumberIslands(3, [](int, int) { return true; }), ElementsAre(1, 1, 1));
  EXPECT_THAT(NumberIslands(1, [](int, int) { return true; }), ElementsAre(0));
  EXPECT_THAT(NumberIslands(0, linked), ElementsAre());
}

TEST(DescribeProcess, SaysWhoRunsWhat) {
  EXPECT_THAT(DescribeProcess(getpid()),
              ::testing::MatchesRegex("process [0-9]+ \\(device_inventor of .+\\)"));
  EXPECT_EQ(DescribeProcess(int64_t{1} << 40), "process 1099511627776");
}

TEST(MarkUnmanagedUse, NamesTheStrangersProcessAndForgivesOurs) {
  std::vector<Device> devices(2);
  devices[0].name = "GPU-aaaa";
  devices[1].name = "GPU-bbbb";
  const auto ours = [](int64_t pid) { return pid == 1; };
  const auto words = [](int64_t pid) { return absl::StrCat("process ", pid, " (python of anna)"); };
  auto marked =
      MarkUnmanagedUse(devices, {{"GPU-aaaa", {1}}, {"GPU-bbbb", {1, 4711}}}, ours, words);
  EXPECT_EQ(marked[0].health, Device::Health::kOk);
  EXPECT_EQ(marked[1].health, Device::Health::kUnmanagedUse);
  EXPECT_THAT(marked[1].health_reason,
              ::testing::HasSubstr("process 4711 (python of anna) uses it"));
  marked = MarkUnmanagedUse(marked, {}, ours, words);
  EXPECT_EQ(marked[1].health, Device::Health::kOk);
  EXPECT_EQ(marked[1].health_reason, "");
}

}  // namespace
}  // namespace trainyard::agent
