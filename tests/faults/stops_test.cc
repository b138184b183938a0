// Cancels, suspends and preempts a job in each of its states. It ends in one final state, once, and
// its devices are free again.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/env.h"
#include "common/rpc/channel.h"
#include "tests/faults/report.h"
#include "tests/integration/yard.h"
#include "tests/testing/wait.h"

namespace trainyard::testing {
namespace {

using ::trainyard::v1::Job;

constexpr absl::Duration kFreeWithin = absl::Seconds(35);
constexpr int kEndless = 100'000;  // epochs: it trains until it is stopped

const char* const kMoments[] = {"queued",    "starting", "running", "stopping",
                                "suspended", "resumed",  "ended"};
const char* const kActions[] = {"cancel", "suspend", "preempt"};

class Stops : public ::testing::Test {
 protected:
  Stops() : yard_(Options()) { yard_.Start(); }

  static Yard::Options Options() {
    Yard::Options options;
    options.cpu_devices = 1;
    options.server_flags = {"--min_runtime", "0s"};
    return options;
  }

  std::string Submit(const std::string& extra) {
    return yard_.Submit(SmallSpec("swept", 1, kEndless, 500, extra));
  }
  void WaitForState(const std::string& job, v1::JobState state) {
    ASSERT_TRUE(yard_.WaitForJob(job, [&](const Job& seen) { return seen.state() == state; }))
        << yard_.GetJob(job).ShortDebugString();
  }
  void Suspend(const std::string& job) { EXPECT_EQ(yard_.Cli({"suspend", job}).exit_code, 0); }

  // Submits a job and brings it to that moment. `holder` takes the device if others must wait.
  std::string Reach(const std::string& moment, std::string& holder) {
    if (moment == "queued") {
      holder = Submit("priority: 5\n");
      EXPECT_TRUE(yard_.WaitForStep(holder, 1));
      return Submit("");
    }
    const std::string job = Submit("");
    if (moment == "starting") return job;
    EXPECT_TRUE(yard_.WaitForStep(job, 1));
    if (moment == "running") return job;
    if (moment == "ended") {
      EXPECT_EQ(yard_.Cli({"cancel", job}).exit_code, 0);
      yard_.WaitForEnd(job);
      return job;
    }
    Suspend(job);
    if (moment == "stopping") return job;
    WaitForState(job, v1::JOB_STATE_SUSPENDED);
    if (moment == "resumed") {
      EXPECT_EQ(yard_.Cli({"resume", job}).exit_code, 0);
    }
    return job;
  }

  void Act(const std::string& action, const std::string& job) {
    if (action == "cancel") {
      // It is refused only where the job has ended otherwise, which the caller sees in its state.
      yard_.Cli({"cancel", job});
    } else if (action == "suspend") {
      yard_.Cli({"suspend", job});
    } else {
      const std::string urgent = Submit("priority: 10\n");
      EXPECT_TRUE(yard_.WaitForStep(urgent, 1));
      EXPECT_EQ(yard_.Cli({"cancel", urgent}).exit_code, 0);
      yard_.WaitForEnd(urgent);
    }
  }

  int64_t FinalEvents(const std::string& job) {
    grpc::ClientContext context;
    rpc::SetTimeout(context, kPatience);
    v1::ListEventsRequest request;
    request.set_parent(job);
    v1::ListEventsResponse response;
    const grpc::Status status = yard_.jobs().ListEvents(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    static const std::set<std::string> kFinal = {"JOB_SUCCEEDED", "JOB_FAILED", "JOB_CANCELLED"};
    return std::count_if(response.events().begin(), response.events().end(),
                         [](const v1::Event& event) { return kFinal.count(event.type()) > 0; });
  }

  bool IsFree() {
    for (const auto& device : yard_.CliJson({"devices", "ls"})) {
      if (device.value("attempt", "") != "") return false;
    }
    return true;
  }

  void Check(const std::string& moment, const std::string& action) {
    SCOPED_TRACE(absl::StrCat(action, " while ", moment));
    std::string holder;
    const std::string job = Reach(moment, holder);
    if (HasFatalFailure()) return;
    Act(action, job);
    const absl::Duration begin = Clock::Real()->Uptime();
    for (const std::string& one : {job, holder}) {
      if (one.empty()) continue;
      EXPECT_EQ(yard_.Cli({"cancel", one}).exit_code, 0);
    }
    EXPECT_EQ(yard_.WaitForEnd(job).state(), v1::JOB_STATE_CANCELLED);
    if (!holder.empty()) yard_.WaitForEnd(holder);
    EXPECT_TRUE(WaitUntil([this] { return IsFree(); }, kFreeWithin));
    longest_ = std::max(longest_, Clock::Real()->Uptime() - begin);
    EXPECT_EQ(FinalEvents(job), 1);
    EXPECT_EQ(yard_.GetJob(job).state(), v1::JOB_STATE_CANCELLED);
    ++cases_;
  }

  Yard yard_;
  int cases_ = 0;
  absl::Duration longest_;
};

TEST_F(Stops, EveryActionInEveryStateGivesOneFinalStateAndFreesTheDevices) {
  FaultRow row({.fault = "a job is stopped in each of its states",
                .injection = "cancel, suspend and preempt while it is queued, starting, running, "
                             "stopping, suspended, resumed and ended",
                .expectation = "one final state; its devices are free within 35 s"});
  // The short lane takes each state once, with the actions in turn.
  size_t turn = 0;
  for (const char* moment : kMoments) {
    for (size_t i = 0; i < std::size(kActions); ++i) {
      if (IsLongLane() || i == turn % std::size(kActions)) Check(moment, kActions[i]);
      if (HasFatalFailure()) return;
    }
    ++turn;
  }
  EXPECT_LT(longest_, kFreeWithin);
  row.Count("cases", cases_);
  row.Longest("devices free after", longest_);
  row.Survived();
}

}  // namespace
}  // namespace trainyard::testing
