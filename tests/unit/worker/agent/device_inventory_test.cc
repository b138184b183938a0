// Tests how processors are divided among devices, and how processes of strangers on GPUs are found.
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
  for (const CpuDeviceOptions& options :
       {CpuDeviceOptions{3, 1}, CpuDeviceOptions{1, 3}, CpuDeviceOptions{0, 3},
        CpuDeviceOptions{-1, 1}, CpuDeviceOptions{3, 0}}) {
    EXPECT_EQ(DivideCpus({0, 1}, 0, options).status().code(), absl::StatusCode::kInvalidArgument)
        << options.count << " x " << options.threads_per_device;
  }
  EXPECT_FALSE(DivideCpus({}, 0, {}).ok());
}

CpuDeviceOptions Read(absl::string_view text) {
  CpuDeviceOptions options;
  const absl::Status status = ReadCpuDevices(text, options);
  EXPECT_TRUE(status.ok()) << status;
  return options;
}

TEST(ReadCpuDevices, TakesANumberGroupsOrProcessors) {
  EXPECT_EQ(Read("4").count, 4);
  EXPECT_TRUE(Read("0").shapes.empty());
  EXPECT_THAT(Read("1x2,2x1").shapes,
              ElementsAre(CpuDeviceShape{2}, CpuDeviceShape{1}, CpuDeviceShape{1}));
  EXPECT_THAT(Read("1@0,2@1-3").shapes,
              ElementsAre(CpuDeviceShape{1, {0}}, CpuDeviceShape{2, {1, 2, 3}}));
}

TEST(ReadCpuDevices, RefusesWhatNamesNone) {
  for (const char* text : {"", "x", "2x", "0x1", "1x0", "1x2,", "-1", "1@", "1@3-1", "1@a",
                           "1@0-1-2", "1@99999", "1025", "1000x1,25x1", "1x1x1", "1.5"}) {
    CpuDeviceOptions options;
    const absl::Status status = ReadCpuDevices(text, options);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("names no CPU devices"));
  }
}

TEST(DivideCpus, UnequalDevicesHaveThreadsAndProcessorsOfTheirOwn) {
  const auto devices = DivideCpus({0, 2, 4, 6}, 900, Read("1x2,2x1"));
  ASSERT_TRUE(devices.ok()) << devices.status();
  ASSERT_EQ(devices->size(), 3U);
  EXPECT_EQ((*devices)[0].threads, 2);
  EXPECT_THAT((*devices)[0].cpus, ElementsAre(0, 2));
  EXPECT_THAT((*devices)[2].cpus, ElementsAre(6));
  EXPECT_EQ((*devices)[2].name, "cpu-2");
  EXPECT_EQ((*devices)[2].memory_bytes, 300);
}

TEST(DivideCpus, DevicesThatNameTheirProcessorsMayShareThem) {
  const auto devices = DivideCpus({0, 1}, 0, Read("1@0,1@1,1@1"));
  ASSERT_TRUE(devices.ok()) << devices.status();
  EXPECT_THAT((*devices)[1].cpus, ElementsAre(1));
  EXPECT_THAT((*devices)[2].cpus, ElementsAre(1));
}

TEST(DivideCpus, UnequalDevicesThatDoNotFitAreRefusedUnlessTheyShare) {
  CpuDeviceOptions options = Read("1x2,1x1");
  EXPECT_THAT(std::string(DivideCpus({0, 1}, 0, options).status().message()),
              ::testing::HasSubstr("2 CPU devices need 3 processors; this process may use 2"));
  options.share = true;
  const auto shared = DivideCpus({0, 1}, 0, options);
  ASSERT_TRUE(shared.ok()) << shared.status();
  EXPECT_THAT((*shared)[0].cpus, ElementsAre());
  EXPECT_EQ((*shared)[0].threads, 2);
  options.threads_per_device = 1;
  EXPECT_FALSE(DivideCpus({0, 1}, 0, options).ok());
  EXPECT_THAT(std::string(DivideCpus({0, 1}, 0, Read("1@5")).status().message()),
              ::testing::HasSubstr("processor 5 is none of the 2"));
  EXPECT_FALSE(DivideCpus({0, 1}, 0, Read("1@0,1x1")).ok());
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
  EXPECT_EQ(DeviceTypeOf("NVIDIA H200 MIG 1g.18gb"), "h200-mig-1g");
  EXPECT_EQ(DeviceTypeOf("NVIDIA H100 80GB HBM3 MIG 1g.10gb+me"), "h100-mig-1g-me");
  EXPECT_EQ(DeviceTypeOf(""), "gpu");
}

TEST(NumberIslands, JoinsWhatIsLinkedThroughOthersAndLeavesOutWhatIsNot) {
  // There is a ring of four, 0-4-1-3, and 2 has no links.
  const std::set<std::pair<int, int>> links = {{0, 4}, {1, 4}, {1, 3}, {0, 3}};
  const auto linked = [&links](int a, int b) { return links.contains(std::minmax(a, b)); };
  EXPECT_THAT(NumberIslands(5, linked), ElementsAre(1, 1, 0, 1, 1));
  // Behind one switch, every GPU reaches every other one.
  EXPECT_THAT(NumberIslands(3, [](int, int) { return true; }), ElementsAre(1, 1, 1));
  EXPECT_THAT(NumberIslands(1, [](int, int) { return true; }), ElementsAre(0));
  EXPECT_THAT(NumberIslands(0, linked), ElementsAre());
}

TEST(DescribeProcess, SaysWhoRunsWhat) {
  EXPECT_THAT(DescribeProcess(getpid()),
              ::testing::MatchesRegex("process [0-9]+ \\(devices_test of .+\\)"));
  EXPECT_EQ(DescribeProcess(int64_t{1} << 40), "process 1099511627776");
}

class MarkUnmanagedUseTest : public ::testing::Test {
 protected:
  MarkUnmanagedUseTest() : devices_(2) {
    devices_[0].name = "GPU-aaaa";
    devices_[1].name = "GPU-bbbb";
    view_.is_ours = [](int64_t pid) { return pid == 1; };
    view_.is_visible = [](int64_t pid) { return pid > 0 && pid < 10'000; };
    view_.describe = [](int64_t pid) { return absl::StrCat("process ", pid, " (python of anna)"); };
  }

  // Returns the reason with which the second device is marked, or an empty text if it is healthy.
  std::string Mark(const DeviceUse& use) {
    const auto marked = MarkUnmanagedUse(devices_, {{"GPU-aaaa", {{1}}}, {"GPU-bbbb", use}}, view_);
    EXPECT_EQ(marked[0].health, Device::Health::kOk);
    EXPECT_EQ(marked[1].health, marked[1].health_reason.empty() ? Device::Health::kOk
                                                                : Device::Health::kUnmanagedUse);
    return marked[1].health_reason;
  }

  std::vector<Device> devices_;
  ProcessView view_;
};

TEST_F(MarkUnmanagedUseTest, NamesTheStrangersProcessAndForgivesOurs) {
  EXPECT_EQ(Mark({{1}}), "");
  EXPECT_THAT(Mark({{1, 4711}}), ::testing::HasSubstr("process 4711 (python of anna) uses it"));
  // The stranger is found even beside a rank of ours.
  EXPECT_THAT(Mark({{1, 4711}, 0, true}), ::testing::HasSubstr("4711"));
}

TEST_F(MarkUnmanagedUseTest, AProcessOfAnotherNamespaceIsForeignUnlessARankOfOursMayBeIt) {
  for (const int64_t pid : {int64_t{0}, int64_t{90'000}}) {
    EXPECT_THAT(Mark({{pid}}), ::testing::HasSubstr("cannot be seen from here"));
    EXPECT_EQ(Mark({{pid}, 0, true}), "");
  }
}

TEST_F(MarkUnmanagedUseTest, MemoryThatNobodyIsSeenToUseIsForeign) {
  EXPECT_EQ(Mark({{}, kUnseenMemoryBytes}), "");
  EXPECT_THAT(Mark({{}, kUnseenMemoryBytes + 1}),
              ::testing::HasSubstr("some of its memory is used by"));
  EXPECT_EQ(Mark({{}, kUnseenMemoryBytes + 1, true}), "");
  EXPECT_EQ(Mark({{1}, kUnseenMemoryBytes + 1}), "");
}

TEST_F(MarkUnmanagedUseTest, AStrangerWhoHasLeftIsForgottenAndAnErrorIsNot) {
  devices_[1].health = Device::Health::kUnmanagedUse;
  devices_[1].health_reason = "process 4711 uses it";
  EXPECT_EQ(Mark({}), "");
  devices_[1].health = Device::Health::kQuarantined;
  devices_[1].health_reason = "Xid 79";
  const auto marked = MarkUnmanagedUse(devices_, {{"GPU-bbbb", {{4711}}}}, view_);
  EXPECT_EQ(marked[1].health, Device::Health::kQuarantined);
  EXPECT_EQ(marked[1].health_reason, "Xid 79");
}

TEST(IsProcessVisible, KnowsThisProcessAndNoneThatCannotBe) {
  EXPECT_TRUE(IsProcessVisible(getpid()));
  EXPECT_FALSE(IsProcessVisible(0));
  EXPECT_FALSE(IsProcessVisible(int64_t{1} << 40));
}

}  // namespace
}  // namespace trainyard::agent
