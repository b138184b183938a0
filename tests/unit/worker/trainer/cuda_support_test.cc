// Tests which GPU a rank takes, and how much of its memory, on an emulated device.
#include "worker/trainer/cuda/cuda_support.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/testing/cuda_on_cpu/cuda_on_cpu.h"
#include "worker/run_dir/assignment.h"

namespace trainyard::trainer {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kGib = int64_t{1} << 30;

class CudaSupportTest : public ::testing::Test {
 protected:
  CudaSupportTest() { cuda_on_cpu::SetDeviceBytes(6 * kGib); }
  ~CudaSupportTest() override {
    cuda_on_cpu::SetDeviceBytes(8 * kGib);
    unsetenv("CUDA_VISIBLE_DEVICES");
  }

  // Returns the memory of each rank, in GiB, after it has chosen its device.
  static std::vector<double> GibOf(const std::vector<run_dir::RankAssignment>& ranks) {
    std::vector<double> gib;
    for (size_t i = 0; i < ranks.size(); ++i) {
      // Each rank is a process, which reads the assignment for itself.
      run_dir::Assignment assignment;
      assignment.ranks = ranks;
      CudaSupport support;
      const absl::Status chosen = support.Choose(assignment, assignment.ranks[i]);
      EXPECT_TRUE(chosen.ok()) << chosen;
      gib.push_back(static_cast<double>(assignment.ranks[i].memory_bytes) / kGib);
    }
    return gib;
  }
};

TEST_F(CudaSupportTest, ARankUsesNoMoreThanItsDeviceHasAndNoMoreThanWasAssigned) {
  EXPECT_THAT(GibOf({{.rank = 0, .device = "GPU-a"}}), ElementsAre(6));
  EXPECT_THAT(GibOf({{.rank = 0, .device = "GPU-a", .memory_bytes = 140 * kGib}}), ElementsAre(6));
  EXPECT_THAT(GibOf({{.rank = 0, .device = "MIG-a", .memory_bytes = 4 * kGib}}), ElementsAre(4));
}

TEST_F(CudaSupportTest, RanksThatShareADeviceDivideItsMemory) {
  const run_dir::RankAssignment first = {.rank = 0, .device = "GPU-a", .memory_bytes = 140 * kGib};
  run_dir::RankAssignment second = first;
  second.rank = 1;
  EXPECT_THAT(GibOf({first, second}), ElementsAre(3, 3));
  second.device = "GPU-b";
  EXPECT_THAT(GibOf({first, second}), ElementsAre(6, 6));
  // Those without a UUID all take the first GPU.
  EXPECT_THAT(GibOf({{.rank = 0, .device = "a"}, {.rank = 1, .device = "b"}, {.rank = 2}}),
              ElementsAre(2, 2, 2));
}

TEST_F(CudaSupportTest, TheProcessSeesTheDeviceOfItsRankAlone) {
  for (const std::string uuid : {"GPU-a", "MIG-b"}) {
    GibOf({{.rank = 0, .device = uuid}});
    EXPECT_EQ(std::string(std::getenv("CUDA_VISIBLE_DEVICES")), uuid);
  }
}

TEST_F(CudaSupportTest, AHostWithoutADeviceIsUnavailable) {
  cuda_on_cpu::SetDeviceCount(0);
  run_dir::Assignment assignment;
  assignment.ranks = {{.rank = 0, .device = "GPU-a"}};
  const absl::Status chosen = CudaSupport().Choose(assignment, assignment.ranks[0]);
  cuda_on_cpu::SetDeviceCount(1);
  EXPECT_EQ(chosen.code(), absl::StatusCode::kUnavailable) << chosen;
}

}  // namespace
}  // namespace trainyard::trainer
