// Sends the calls of a worker twice and again, and finds the same jobs, points and log lines as
// without.
#include <gtest/gtest.h>
#include <signal.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tests/faults/replaying_proxy.h"
#include "tests/faults/report.h"
#include "tests/faults/witness.h"
#include "tests/integration/traces.h"
#include "tests/integration/yard.h"

namespace trainyard::testing {
namespace {

using ::trainyard::v1::Job;

constexpr int kSteps = 160;  // 4 epochs of 40 steps
constexpr int kLogLines = 500;

// There is no checkpoint before the end, so that an attempt begins again and needs no stream.
std::string Spec(const std::string& name) {
  return absl::StrReplaceAll(SmallSpec(name, 2, 4, 2000, "checkpoint: {every: 1000 steps}\n"),
                             {{"channels: [16, 32]", "channels: [8, 16]"}});
}

// The lines that the prelude wrote which are missing, doubled, or in another place.
int64_t WrongLogLines(Yard& yard, const std::string& attempt) {
  int64_t expected = 1;
  int64_t wrong = 0;
  const ProcessResult log = yard.Cli({"logs", attempt, "--rank", "0"});
  for (const absl::string_view line : absl::StrSplit(log.out, '\n')) {
    if (!absl::StrContains(line, "line ")) continue;
    wrong += absl::EndsWith(line, absl::StrCat("line ", expected, ".")) ? 0 : 1;
    ++expected;
  }
  return wrong + std::abs(kLogLines + 1 - expected);
}

TEST(Replay, CallsThatComeTwiceOrLateChangeNothing) {
  FaultRow row({.fault = "messages are doubled, replayed and reordered",
                .injection = "a proxy between worker and server sends calls twice, and old ones "
                             "again, also those of an older attempt",
                .expectation = "the same state, points, log lines and weights"});
  const Witness witness(
      absl::StrCat("seq -f 'line %g.' ", kLogLines, "  # before the trainer's own words"));
  Yard::Options options;
  options.worker_flags = {"--share_cpus", "--trainer", witness.trainer()};
  Yard yard(options);
  yard.StartServer();
  const std::string near = absl::StrCat("unix:", yard.File("proxy.sock"));
  ReplayingProxy proxy(near, yard.address(), /*seed=*/7);
  yard.StartWorker("alpha", {.network_namespace = -1, .flags = {}, .server_address = near});
  const std::string plain = yard.Submit(Spec("plain"));
  ASSERT_EQ(yard.WaitForEnd(plain).state(), v1::JOB_STATE_SUCCEEDED);

  proxy.BeginNoise();
  const std::string job = yard.Submit(Spec("noisy"));
  ASSERT_TRUE(yard.WaitForStep(job, 20));
  // The calls of the first attempt then come again while the second runs.
  const auto record = yard.SupervisorRecord(yard.RunDir(job, 1));
  ASSERT_TRUE(record.contains("ranks")) << record;
  kill(record["ranks"][1]["pid"].get<pid_t>(), SIGKILL);
  const Job ended = yard.WaitForEnd(job);
  ASSERT_EQ(ended.state(), v1::JOB_STATE_SUCCEEDED) << ended.failure().message();
  EXPECT_EQ(ended.attempt(), 2);
  const ReplayingProxy::Counts counts = proxy.counts();
  const Trace trace = TraceOf(yard, job);
  ExpectNoTrace(trace, TraceOf(yard, plain), kSteps);
  EXPECT_EQ(witness.StartedTwice(), 0);
  EXPECT_EQ(witness.Overlaps(), 0);
  EXPECT_EQ(WrongLogLines(yard, absl::StrCat(job, "/attempts/2")), 0);
  EXPECT_GT(counts.doubled, 10);
  EXPECT_GT(counts.replayed, 10);
  row.Count("calls", counts.calls);
  row.Count("doubled", counts.doubled);
  row.Count("replayed", counts.replayed);
  for (const auto& [reason, times] : counts.refused) {
    row.Count(absl::StrCat("refused as ", reason.empty() ? "other" : reason), times);
  }
  row.Count("points doubled", trace.doubled);
  row.Survived();
}

}  // namespace
}  // namespace trainyard::testing
