// Lets all workers of a large pool come back at once after a restart of the server. All are back
// within half a minute, and jobs are accepted meanwhile.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/env.h"
#include "common/base/files.h"
#include "common/rpc/channel.h"
#include "tests/faults/crowd.h"
#include "tests/faults/report.h"
#include "tests/integration/yard.h"
#include "tests/testing/wait.h"

namespace trainyard::testing {
namespace {

constexpr absl::Duration kBackWithin = absl::Seconds(30);
constexpr absl::Duration kSubmitWithin = absl::Seconds(1);

// Submits a job that waits, and returns the time that it took.
absl::Duration SubmitOne(Yard& yard, int number) {
  const v1::CreateJobRequest request = WaitingJob(absl::StrCat("crowd-", number));
  grpc::ClientContext context;
  rpc::SetTimeout(context, kPatience);
  v1::Job job;
  const absl::Duration begin = Clock::Real()->Uptime();
  const grpc::Status status = yard.jobs().CreateJob(&context, request, &job);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return Clock::Real()->Uptime() - begin;
}

TEST(Crowd, AllWorkersComeBackAtOnceAndJobsAreAcceptedMeanwhile) {
  FaultRow row({.fault = "all workers reconnect at once",
                .injection = "SIGKILL and a start of the server, to which many workers belong",
                .expectation = "all are back within 30 s; 99 of 100 jobs are accepted within 1 s "
                               "meanwhile"});
  const int count = Scaled(100, 1000);
  Yard yard;
  yard.StartServer();
  Crowd crowd(yard.address(), count);
  const auto all_have_heard = [&](absl::Duration since) {
    return WaitUntil([&] { return crowd.HeardSince(since) == count; }, kPatience);
  };
  ASSERT_TRUE(all_have_heard(absl::ZeroDuration())) << crowd.HeardSince(absl::ZeroDuration());

  yard.KillServer();
  yard.StartServer();
  const absl::Duration begin = Clock::Real()->Uptime();
  std::vector<absl::Duration> submits;
  bool are_back = false;
  while (!are_back && Clock::Real()->Uptime() - begin < kPatience) {
    submits.push_back(SubmitOne(yard, static_cast<int>(submits.size())));
    are_back = crowd.HeardSince(begin) == count;
  }
  const absl::Duration took = Clock::Real()->Uptime() - begin;
  EXPECT_TRUE(are_back) << crowd.HeardSince(begin);
  EXPECT_LT(took, kBackWithin);
  std::sort(submits.begin(), submits.end());
  const absl::Duration p99 = submits[submits.size() * 99 / 100];
  EXPECT_LT(p99, kSubmitWithin);
  EXPECT_EQ(yard.CliJson({"workers", "ls"}).size(), static_cast<size_t>(count));
  row.Count("workers", count);
  row.Longest("all back after", took);
  row.Count("jobs submitted", static_cast<int64_t>(submits.size()));
  row.Longest("p99 of a submission", p99);
  row.Survived();
}

}  // namespace
}  // namespace trainyard::testing
