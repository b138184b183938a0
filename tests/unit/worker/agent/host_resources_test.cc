// Tests what jobs may use of a host, and which processors ranks are bound to.
#include "worker/agent/host_resources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trainyard::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kGiB = int64_t{1} << 30;

TEST(HostResources, JobsGetWhatIsNotHeldBack) {
  const auto host = MakeHost({0, 1, 2, 3}, 0, 16 * kGiB, {1, 4 * kGiB});
  ASSERT_TRUE(host.ok()) << host.status();
  EXPECT_EQ(host->cpus, 3);
  EXPECT_EQ(host->memory_bytes, 12 * kGiB);
  EXPECT_THAT(host->processors, ElementsAre(1, 2, 3));
}

TEST(HostResources, AQuotaOfTheControlGroupCounts) {
  const auto host = MakeHost({0, 1, 2, 3}, 2, 16 * kGiB, {});
  ASSERT_TRUE(host.ok()) << host.status();
  EXPECT_EQ(host->cpus, 2);
}

TEST(HostResources, SomethingIsLeftToJobs) {
  EXPECT_THAT(MakeHost({0, 1}, 0, kGiB, {2, 0}).status().message(),
              HasSubstr("--reserve_cpus 2: this process may use 2 processors"));
  EXPECT_THAT(MakeHost({0, 1}, 1, kGiB, {1, 0}).status().message(), HasSubstr("--reserve_cpus 1"));
  EXPECT_THAT(MakeHost({0, 1}, 0, kGiB, {0, kGiB}).status().message(),
              HasSubstr("--reserve_memory"));
}

TEST(HostResources, DevicesThatShareProcessorsAreAllOffered) {
  Device device;
  device.type = "cpu";
  device.threads = 2;
  HostResources host{2, kGiB, {0, 1}};
  CoverDevices({device, device, device}, host);
  EXPECT_EQ(host.cpus, 6);
  device.type = "h200";
  HostResources other{2, kGiB, {0, 1}};
  CoverDevices({device, device}, other);
  EXPECT_EQ(other.cpus, 2);
}

TEST(HostResources, RanksGetProcessorsOfTheirOwnNearTheirDevice) {
  const HostResources host{8, kGiB, {0, 1, 2, 3, 4, 5, 6, 7}};
  EXPECT_THAT(ChooseCpus(host, {2, 3}, {}, 2), ElementsAre(2, 3));
  EXPECT_THAT(ChooseCpus(host, {2, 3}, {2}, 2), ElementsAre(3, 7));
  EXPECT_THAT(ChooseCpus(host, {}, {7}, 2), ElementsAre(5, 6)) << "the first ones stay together";
  EXPECT_THAT(ChooseCpus(host, {90}, {}, 1), ElementsAre(7)) << "others are not ours to give";
  EXPECT_THAT(ChooseCpus(host, {0}, {0, 1, 2, 3, 4}, 4), IsEmpty());
}

TEST(HostResources, ListsOfProcessorsAreReadAsTheKernelPrintsThem) {
  EXPECT_THAT(ParseCpuList("0-2,8\n"), ElementsAre(0, 1, 2, 8));
  for (const char* text : {"", "x", "3-1", "-1", "0-99999999"}) {
    EXPECT_THAT(ParseCpuList(text), IsEmpty()) << text;
  }
  EXPECT_THAT(CpusNear("../../etc"), IsEmpty());
}

}  // namespace
}  // namespace trainyard::agent
