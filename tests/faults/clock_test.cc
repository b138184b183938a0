// Moves the wall clock of the server, of the worker and of its ranks by days. No lease ends by
// that, and no time becomes negative.
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/env.h"
#include "tests/faults/report.h"
#include "tests/faults/shim.h"
#include "tests/integration/yard.h"
#include "tests/testing/wait.h"

namespace trainyard::testing {
namespace {

// Returns true if a text of the command line has a negative time: "-3s", " -1.5d".
bool HasNegativeTime(const std::string& text) {
  for (size_t i = 1; i + 1 < text.size(); ++i) {
    if (text[i] != '-' || !absl::ascii_isdigit(static_cast<unsigned char>(text[i + 1]))) continue;
    if (text[i - 1] == ' ' || text[i - 1] == '\n') return true;
  }
  return false;
}

bool IsNear(absl::Time a, absl::Time b) {
  return absl::AbsDuration(a - b) < absl::Minutes(5);
}

class ClockJumps : public ::testing::TestWithParam<const char*> {};

TEST_P(ClockJumps, EndNoLease) {
  const std::string who = GetParam();
  FaultRow row({.fault = "the wall clock jumps",
                .injection = absl::StrCat("by days and back, on the ", who,
                                          " (a preloaded library answers for the clock)"),
                .expectation = "no lease ends; the job goes on in its attempt; no time is "
                               "negative"});
  SKIP_WITHOUT_SHIM();
  if (who != "server") LONG_LANE_ONLY();
  Shim shim;
  Yard::Options options;
  (who == "server" ? options.server_environment : options.worker_environment) = shim.Environment();
  Yard yard(options);
  yard.Start();
  const std::string job = yard.Submit(SmallSpec("steady", 1, 1000, 2000));
  ASSERT_TRUE(yard.WaitForStep(job, 1));
  const absl::Duration day = absl::Hours(24);
  std::vector<absl::Duration> offsets = {day};
  if (IsLongLane()) {
    offsets.insert(offsets.end(), {-day, 3650 * day, -3650 * day, absl::Hours(1), -absl::Hours(1),
                                   30 * day, absl::ZeroDuration()});
  }
  for (const absl::Duration offset : offsets) {
    SCOPED_TRACE(absl::FormatDuration(offset));
    shim.SetClockOffset(offset);
    // Abseil looks at the system's clock every two seconds.
    std::string other;
    ASSERT_TRUE(WaitUntil(
        [&] {
          if (!other.empty()) yard.Cli({"cancel", other});
          other = yard.Submit(SmallSpec("other", 1, 1000, 2000));
          const auto shown = who == "server" ? yard.GetJob(other).create_time()
                                             : yard.Metrics(job, "train.loss").back().time();
          return IsNear(absl::FromUnixSeconds(shown.seconds()), Clock::Real()->Now() + offset);
        },
        kPatience))
        << "the clock has not moved";
    const int64_t step = yard.GetJob(job).progress().step();
    ASSERT_TRUE(yard.WaitForStep(job, step + 20));
    const v1::Job seen = yard.GetJob(job);
    EXPECT_EQ(seen.state(), v1::JOB_STATE_RUNNING);
    EXPECT_EQ(seen.attempt(), 1);
    EXPECT_GE(seen.device_time().seconds(), 0);
    EXPECT_LT(seen.device_time().seconds(), 3600) << "the job runs for seconds";
    const std::string workers = yard.Cli({"workers", "ls"}).out;
    EXPECT_TRUE(absl::StrContains(workers, "ACTIVE")) << workers;
    for (const std::string& shown :
         {workers, yard.Cli({"ls"}).out, yard.Cli({"ls", "-o", "wide"}).out,
          yard.Cli({"show", job}).out}) {
      EXPECT_FALSE(HasNegativeTime(shown)) << shown;
    }
    // The new job is placed, and ends when it is cancelled.
    ASSERT_TRUE(yard.WaitForStep(other, 1));
    EXPECT_EQ(yard.Cli({"cancel", other}).exit_code, 0);
    EXPECT_EQ(yard.WaitForEnd(other).state(), v1::JOB_STATE_CANCELLED);
    row.Count("jumps", 1);
  }
  row.Count("leases ended", yard.GetJob(job).attempt() - 1);
  if (!HasFailure()) row.Survived();
}

INSTANTIATE_TEST_SUITE_P(Hosts, ClockJumps, ::testing::Values("server", "worker"),
                         [](const auto& who) { return who.param; });

}  // namespace
}  // namespace trainyard::testing
