// Tests what `train.precision: auto` becomes on the devices of a first placement.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "server/core/lifecycle/records.h"

namespace trainyard::core {
namespace {

DeviceRecord Device(const std::string& type, bool bf16) {
  DeviceRecord device;
  device.type = type;
  device.bf16 = bf16;
  return device;
}

TEST(AutoPrecision, IsBf16OnGpusOfOneTypeThatComputeInIt) {
  const DeviceRecord h200 = Device("h200", true);
  EXPECT_EQ(AutoPrecision({&h200}), Precision::kBf16);
  EXPECT_EQ(AutoPrecision({&h200, &h200, &h200}), Precision::kBf16);
}

TEST(AutoPrecision, IsF32OnOldGpusOnMixedTypesAndOnTheCpu) {
  const DeviceRecord v100 = Device("v100", false);
  const DeviceRecord h200 = Device("h200", true);
  const DeviceRecord a100 = Device("a100", true);
  const DeviceRecord cpu = Device("cpu", true);
  EXPECT_EQ(AutoPrecision({&v100}), Precision::kF32);
  EXPECT_EQ(AutoPrecision({&h200, &a100}), Precision::kF32);
  EXPECT_EQ(AutoPrecision({&h200, &cpu}), Precision::kF32);
  EXPECT_EQ(AutoPrecision({&cpu}), Precision::kF32) << "even if it could compute in bf16";
}

TEST(DemandOf, AsksForBf16OnceThatIsTheJobsPrecision) {
  JobRecord job;
  auto submission = std::make_shared<Submission>();
  submission->demand.count = 3;
  submission->auto_precision = true;
  job.submission = submission;
  EXPECT_EQ(DemandOf(job), submission->demand);
  job.precision = Precision::kF32;
  EXPECT_EQ(DemandOf(job), submission->demand);
  job.precision = Precision::kBf16;
  Demand expected = submission->demand;
  expected.bf16 = true;
  EXPECT_EQ(DemandOf(job), expected);
}

}  // namespace
}  // namespace trainyard::core
