// Lets the worker's disk fail under what a rank writes. The training goes on, and its curve is
// whole.
#include <gtest/gtest.h>

#include <cerrno>
#include <ostream>
#include <string>

#include "tests/faults/report.h"
#include "tests/faults/shim.h"
#include "tests/integration/yard.h"

namespace trainyard::testing {
namespace {

constexpr int64_t kSteps = 60;  // 1 epoch
constexpr char kCheckpoints[] = "checkpoint: {every: 5 steps}\nmax_retries: 0\n";

struct Failure {
  const char* name;
  const char* injection;
  Shim::Fault fault;
  bool is_short;
};

// Without it, the names of the tests would have addresses in them.
void PrintTo(const Failure& failure, std::ostream* out) {
  *out << failure.name;
}

class RankDisk : public ::testing::TestWithParam<Failure> {};

TEST_P(RankDisk, FailuresCostNoStep) {
  const Failure& failure = GetParam();
  FaultRow row({.fault = "the worker's disk fails under a rank",
                .injection = failure.injection,
                .expectation = "the training goes on in its attempt; each point is there once; "
                               "later checkpoints are written"});
  SKIP_WITHOUT_SHIM();
  if (!failure.is_short) LONG_LANE_ONLY();
  Shim shim;
  Yard::Options options;
  options.worker_environment = shim.Environment();
  Yard yard(options);
  yard.Start();
  shim.Arm(failure.fault);
  const std::string job = yard.Submit(SmallSpec("struck", 1, 1, 3000, kCheckpoints));
  const v1::Job ended = yard.WaitForEnd(job);
  EXPECT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED) << ended.failure().message();
  EXPECT_EQ(ended.attempt(), 1);
  EXPECT_EQ(ended.progress().checkpoint_step(), kSteps);
  const auto points = yard.Metrics(job, "train.loss");
  ASSERT_EQ(points.size(), static_cast<size_t>(kSteps));
  for (size_t i = 0; i < points.size(); ++i) {
    ASSERT_EQ(points[i].step(), static_cast<int64_t>(i + 1)) << "a point was lost or doubled";
  }
  EXPECT_GT(shim.Struck(), 0) << "nothing matches";
  row.Count("failures", shim.Struck());
  row.Count("steps", kSteps);
  row.Count("points lost or doubled", 0);
  if (!HasFailure()) row.Survived();
}

INSTANTIATE_TEST_SUITE_P(
    Parts, RankDisk,
    ::testing::Values(
        Failure{"CheckpointFull",
                "ENOSPC at the first 4 writes of checkpoints",
                {.calls = kShimWrite, .path = "/checkpoints/", .action = ENOSPC, .times = 4},
                true},
        Failure{"CheckpointSync",
                "EIO at the first 4 syncs of checkpoints",
                {.calls = kShimSync, .path = "/checkpoints/", .action = EIO, .times = 4},
                false},
        Failure{"CheckpointName",
                "EIO at the first 2 renames of checkpoints",
                {.calls = kShimRename, .path = "/checkpoints/", .action = EIO, .times = 2},
                false},
        Failure{"MetricsFull",
                "ENOSPC at the first 3 writes of metrics",
                {.calls = kShimWrite, .path = "metrics.jsonl", .action = ENOSPC, .times = 3},
                false},
        Failure{"ProgressFull",
                "ENOSPC at the first 5 records of progress",
                {.calls = kShimWrite, .path = "progress.json", .action = ENOSPC, .times = 5},
                false}),
    [](const auto& failure) { return failure.param.name; });

}  // namespace
}  // namespace trainyard::testing
