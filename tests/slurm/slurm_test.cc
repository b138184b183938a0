// Lets the adapter and the core work with a real Slurm of three nodes. The pilots run a script in
// place of a worker.
#include "server/provision/slurm/slurm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/env.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "server/provision/core/step.h"
#include "tests/testing/paths.h"
#include "tests/testing/process.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/wait.h"

namespace trainyard::provision::slurm {
namespace {

using ::testing::HasSubstr;

constexpr char kPilot[] = "ty-s1-lab-1";
// A busy machine boots a cluster in some seconds.
constexpr absl::Duration kBootTimeout = absl::Seconds(90);
constexpr absl::Duration kPatience = absl::Seconds(60);

// Shows what it was given in the folder, and runs until it is told to end.
constexpr char kWorker[] = R"(
folder=$1
name=$3
trap 'touch "$folder/$name.told"; exit 0' TERM
[ -z "${STUBBORN:-}" ] || trap '' TERM
env > "$folder/$name.environment"
cat "$7" > "$folder/$name.read"
echo "$@" > "$folder/$name.args.part"
mv "$folder/$name.args.part" "$folder/$name.args"
while true; do sleep 0.1; done
)";

class SlurmTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // sbatch may refuse before it has read the script. Servers ignore the signal, too.
    std::signal(SIGPIPE, SIG_IGN);
    const auto result = Script("start", kBootTimeout);
    ASSERT_TRUE(result.ok()) << result.status();
    if (result->exit_code == 77) GTEST_SKIP() << result->err;
    has_cluster_ = true;
    ASSERT_EQ(result->exit_code, 0) << result->err << Log("slurmctld");
    folder_ = dir_.File("shared");
    ASSERT_TRUE(MakeDirectories(folder_, 0700).ok());
    spec_.name = "lab";
    spec_.owner = "ada";
    spec_.node = {1, "cpu", 1, 0};
    spec_.time_limit_us = kHourUs;
    options_ = {folder_, {"/bin/bash", dir_.Write("worker.sh", kWorker), folder_}, {}};
  }
  void TearDown() override {
    if (!has_cluster_) return;
    // Jobs that still run would outlive their daemons.
    (void)Run({"scancel", "--me", "--full", "--signal=KILL"});
    (void)testing::WaitUntil(
        [&] {
          return Run({"squeue", "-h", "--me"}).out.empty();
        },
        absl::Seconds(15));
    (void)Script("stop", kBootTimeout);
  }

  absl::StatusOr<testing::ProcessResult> Script(const std::string& verb, absl::Duration timeout) {
    testing::Process::Options options;
    options.args = {"/bin/bash", testing::SourcePath("tests/slurm/slurm_cluster.sh"), verb,
                    dir_.File("slurm")};
    return testing::RunProcess(options, dir_.path(), timeout);
  }
  std::vector<std::string> Environment() const {
    return {"PATH=/usr/bin:/bin:/usr/sbin", "SQUEUE_FORMAT=%i", "SLURM_TIME_FORMAT=relative",
            absl::StrCat("SLURM_CONF=", dir_.File("slurm/slurm.conf"))};
  }
  // Runs a program of Slurm as a person would.
  CommandResult Run(std::vector<std::string> words) {
    Command command;
    command.words = std::move(words);
    command.environment = CleanEnvironment(Environment());
    const auto result = RunCommand(command, is_stopping_);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : CommandResult{};
  }
  Slurm Adapter() const {
    return Slurm("s1", spec_, options_, Environment(), *Clock::Real(), is_stopping_);
  }
  // Returns the listed state of a pilot, or nothing if it is not listed.
  static std::optional<ListedPilot> Listed(const Slurm& slurm, const std::string& pilot) {
    const Listing listing = slurm.List({});
    EXPECT_EQ(listing.failure, "");
    for (const ListedPilot& listed : listing.pilots) {
      if (listed.name == pilot) return listed;
    }
    return std::nullopt;
  }
  static bool WaitFor(const Slurm& slurm, const std::string& pilot, ForeignState state,
                      absl::Duration patience = kPatience) {
    return testing::WaitUntil(
        [&] {
          const auto listed = Listed(slurm, pilot);
          return listed.has_value() && listed->state == state;
        },
        patience);
  }
  std::string Log(const std::string& daemon) const {
    return ReadFile(dir_.File(absl::StrCat("slurm/log/", daemon))).value_or("");
  }
  std::string File(const std::string& name) const { return JoinPath(folder_, name); }
  std::string Content(const std::string& name) const {
    const auto text = ReadFile(File(name));
    return text.ok() ? *text : "";
  }
  bool Appears(const std::string& name) const {
    return testing::WaitUntil([&] { return FileExists(File(name)); }, kPatience);
  }

  testing::TempDir dir_;
  bool has_cluster_ = false;
  std::string folder_;
  ProviderSpec spec_;
  SlurmOptions options_;
  std::atomic<bool> is_stopping_ = false;
};

TEST_F(SlurmTest, APilotIsSubmittedListedAndCancelled) {
  const Slurm slurm = Adapter();
  EXPECT_TRUE(slurm.TryOut().ok()) << slurm.TryOut();
  EXPECT_TRUE(slurm.List({}).pilots.empty()) << "trying out leaves nothing behind";
  const SubmitResult result = slurm.Submit(kPilot, {"secret"});
  ASSERT_EQ(result.kind, SubmitResult::Kind::kAccepted) << result.reason;
  struct stat status {};
  ASSERT_EQ(stat(TokenPath(options_, kPilot).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  ASSERT_TRUE(WaitFor(slurm, kPilot, ForeignState::kActive));
  const auto listed = Listed(slurm, kPilot);
  EXPECT_EQ(listed->foreign_id, result.foreign_id);
  EXPECT_LE(listed->start_us, absl::ToUnixMicros(Clock::Real()->Now())) << "times are in UTC";
  EXPECT_GT(listed->start_us, absl::ToUnixMicros(Clock::Real()->Now() - absl::Minutes(10)));
  EXPECT_EQ(listed->expire_us - listed->start_us, kHourUs);
  ASSERT_TRUE(Appears("ty-s1-lab-1.args"));
  EXPECT_EQ(Content("ty-s1-lab-1.read"), "secret");
  EXPECT_THAT(Content("ty-s1-lab-1.args"), HasSubstr("--drain_on_stop 270s"));
  EXPECT_THAT(Content("ty-s1-lab-1.args"), ::testing::Not(HasSubstr("secret")));
  EXPECT_THAT(Content("ty-s1-lab-1.environment"), ::testing::Not(HasSubstr("SQUEUE_FORMAT")));
  EXPECT_THAT(Run({"scontrol", "show", "job", result.foreign_id}).out,
              HasSubstr("Comment=trainyard:s1:ty-s1-lab-1"));
  slurm.DropTokens(kPilot);
  EXPECT_FALSE(FileExists(TokenPath(options_, kPilot)));
  ASSERT_TRUE(slurm.Cancel(result.foreign_id).ok());
  EXPECT_TRUE(WaitFor(slurm, kPilot, ForeignState::kCancelled));
  EXPECT_TRUE(slurm.Cancel(result.foreign_id).ok()) << "it may be repeated";
  EXPECT_TRUE(slurm.Cancel("999999").ok());
  // Neither squeue nor the controller knows this one, and that is no failure.
  EXPECT_EQ(slurm.List({"999999"}).failure, "");
}

TEST_F(SlurmTest, WhatNoNodeCanHoldIsRefusedBeforehand) {
  spec_.nodes = 9;
  const absl::Status status = Adapter().TryOut();
  EXPECT_EQ(ErrorReason(status), "PROVIDER_REFUSES");
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("Requested node configuration is not available"));
  spec_.nodes = 1;
  spec_.node = {3, "h200", 1, 0};
  EXPECT_FALSE(Adapter().TryOut().ok()) << "nodes have two";
  spec_.node.devices = 2;
  EXPECT_TRUE(Adapter().TryOut().ok());
  options_.arguments = {"-p", "nosuch"};
  EXPECT_THAT(std::string(Adapter().TryOut().message()), HasSubstr("Invalid partition name"));
  const SubmitResult result = Adapter().Submit(kPilot, {"secret"});
  EXPECT_EQ(result.kind, SubmitResult::Kind::kRefused);
  options_.arguments = {"--nonsense"};
  EXPECT_EQ(Adapter().Submit(kPilot, {"secret"}).kind, SubmitResult::Kind::kRefused);
}

// The core with the adapter in place of a model, turn by turn.
class Turns {
 public:
  Turns(const Slurm& slurm, const ProviderSpec& spec) : slurm_(slurm) {
    state_.server_id = "s1";
    WakeUp(state_, Now());
    EXPECT_TRUE(SetProvider(state_, spec).ok());
  }
  // Takes a turn, and carries its decisions out. Replies are dropped if `loses_replies`.
  void Take(int32_t demand, bool loses_replies = false) {
    Inputs inputs;
    inputs.news["lab"].submitted = std::move(results_);
    results_.clear();
    inputs.news["lab"].listing = slurm_.List({});
    inputs.now_us = Now();
    for (int32_t i = 0; i < demand; ++i) inputs.demand.push_back({{{"lab", 1}}});
    for (const Decision& decision : Step(state_, inputs)) {
      if (decision.kind == DecisionKind::kSubmit) {
        submissions_ += 1;
        const SubmitResult result = slurm_.Submit(decision.pilot, {"secret"});
        if (!loses_replies) results_.push_back(result);
      } else if (decision.kind == DecisionKind::kCancel) {
        EXPECT_TRUE(slurm_.Cancel(decision.foreign_id).ok());
      }
    }
  }
  const Pilot& First() const { return state_.providers.at("lab").pilots.at(1); }
  int32_t submissions() const { return submissions_; }
  State& state() { return state_; }

 private:
  static int64_t Now() { return absl::ToUnixMicros(Clock::Real()->Now()); }

  const Slurm& slurm_;
  State state_;
  std::vector<SubmitResult> results_;
  int32_t submissions_ = 0;
};

TEST_F(SlurmTest, ALostReplyIsAdoptedAndASecondServerCancelsWhatItDoesNotKnow) {
  const Slurm slurm = Adapter();
  Turns turns(slurm, spec_);
  turns.Take(1, /*loses_replies=*/true);
  ASSERT_EQ(turns.submissions(), 1);
  EXPECT_EQ(turns.First().foreign_id, "");
  ASSERT_TRUE(testing::WaitUntil(
      [&] {
        turns.Take(1);
        return turns.First().state == PilotState::kStarting;
      },
      kPatience));
  EXPECT_EQ(turns.First().foreign_id, Listed(slurm, kPilot)->foreign_id);
  EXPECT_EQ(turns.submissions(), 1);
  // The state is lost. Its successor has the same server id.
  Turns later(slurm, spec_);
  ASSERT_TRUE(testing::WaitUntil(
      [&] {
        later.Take(0);
        return Listed(slurm, kPilot)->state == ForeignState::kCancelled;
      },
      kPatience));
  EXPECT_EQ(later.state().next_number, 2);
}

TEST_F(SlurmTest, APilotThatSomebodyCancelsHasEnded) {
  const Slurm slurm = Adapter();
  Turns turns(slurm, spec_);
  turns.Take(1);
  ASSERT_TRUE(WaitFor(slurm, kPilot, ForeignState::kActive));
  EXPECT_EQ(Run({"scancel", "--name", kPilot}).exit_code, 0);
  ASSERT_TRUE(testing::WaitUntil(
      [&] {
        turns.Take(0);
        return turns.First().state == PilotState::kEnded;
      },
      kPatience));
  EXPECT_EQ(turns.First().reason,
            "somebody has cancelled it at the provider before a worker connected");
}

TEST_F(SlurmTest, TheTimeLimitWarnsAndThenEnds) {
  spec_.time_limit_us = kMinuteUs;
  const Slurm gentle = Adapter();
  ASSERT_EQ(gentle.Submit("ty-s1-lab-1", {"a"}).kind, SubmitResult::Kind::kAccepted);
  options_.worker.insert(options_.worker.begin(), {"/usr/bin/env", "STUBBORN=1"});
  const Slurm stubborn = Adapter();
  ASSERT_EQ(stubborn.Submit("ty-s1-lab-2", {"b"}).kind, SubmitResult::Kind::kAccepted);
  EXPECT_TRUE(WaitFor(gentle, "ty-s1-lab-1", ForeignState::kCompleted, absl::Minutes(2)));
  EXPECT_TRUE(FileExists(File("ty-s1-lab-1.told")));
  EXPECT_TRUE(WaitFor(gentle, "ty-s1-lab-2", ForeignState::kTimedOut, absl::Minutes(3)));
}

TEST_F(SlurmTest, AControllerThatIsDownIsNoEndOfPilots) {
  const Slurm slurm = Adapter();
  Turns turns(slurm, spec_);
  turns.Take(1);
  ASSERT_TRUE(WaitFor(slurm, kPilot, ForeignState::kActive));
  turns.Take(1);
  ASSERT_EQ(Script("stop-controller", kBootTimeout)->exit_code, 0);
  EXPECT_THAT(slurm.List({}).failure, HasSubstr("Unable to contact slurm controller"));
  const SubmitResult result = slurm.Submit("ty-s1-lab-9", {"secret"});
  EXPECT_EQ(result.kind, SubmitResult::Kind::kUnknown) << result.reason;
  EXPECT_FALSE(slurm.Cancel("1").ok());
  turns.Take(1);
  EXPECT_EQ(turns.First().state, PilotState::kStarting);
  EXPECT_NE(turns.state().providers.at("lab").listing_failure, "");
  ASSERT_EQ(Script("start-controller", kBootTimeout)->exit_code, 0);
  ASSERT_TRUE(testing::WaitUntil([&] { return slurm.List({}).failure.empty(); }, kPatience));
  EXPECT_EQ(Listed(slurm, kPilot)->state, ForeignState::kActive);
  EXPECT_FALSE(Listed(slurm, "ty-s1-lab-9").has_value());
  turns.Take(1);
  EXPECT_EQ(turns.First().state, PilotState::kStarting);
  EXPECT_EQ(turns.submissions(), 1);
}

TEST_F(SlurmTest, ADrainedNodeKeepsPilotsWaiting) {
  const std::vector<std::string> update = {"scontrol", "update", "NodeName=n1,n2,n3"};
  std::vector<std::string> words = update;
  words.insert(words.end(), {"State=DRAIN", "Reason=maintenance"});
  ASSERT_EQ(Run(words).exit_code, 0);
  const Slurm slurm = Adapter();
  ASSERT_EQ(slurm.Submit(kPilot, {"secret"}).kind, SubmitResult::Kind::kAccepted);
  ASSERT_TRUE(testing::WaitUntil(
      [&] {
        const auto listed = Listed(slurm, kPilot);
        return listed.has_value() && listed->state == ForeignState::kWaiting &&
               listed->reason != "None";
      },
      kPatience));
  EXPECT_THAT(Listed(slurm, kPilot)->reason, HasSubstr("ReqNodeNotAvail"));
  words = update;
  words.push_back("State=RESUME");
  ASSERT_EQ(Run(words).exit_code, 0);
  EXPECT_TRUE(WaitFor(slurm, kPilot, ForeignState::kActive));
}

TEST_F(SlurmTest, EachNodeOfAPilotRunsAWorkerAndAllAreDrained) {
  spec_.nodes = 2;
  spec_.node = {2, "h200", 1, 0};
  const Slurm slurm = Adapter();
  const SubmitResult result = slurm.Submit(kPilot, {"first", "second"});
  ASSERT_EQ(result.kind, SubmitResult::Kind::kAccepted) << result.reason;
  ASSERT_TRUE(Appears("ty-s1-lab-1-n0.args")) << Content("ty-s1-lab-1.log");
  ASSERT_TRUE(Appears("ty-s1-lab-1-n1.args")) << Content("ty-s1-lab-1.log");
  EXPECT_EQ(Content("ty-s1-lab-1-n0.read"), "first");
  EXPECT_EQ(Content("ty-s1-lab-1-n1.read"), "second");
  EXPECT_THAT(Content("ty-s1-lab-1-n0.environment"), HasSubstr("SLURM_GPUS_ON_NODE=2"));
  // Slurm's warning, earlier than it would come.
  ASSERT_EQ(Run({"scancel", "--batch", "--signal=USR1", result.foreign_id}).exit_code, 0);
  EXPECT_TRUE(Appears("ty-s1-lab-1-n0.told")) << Content("ty-s1-lab-1.log");
  EXPECT_TRUE(Appears("ty-s1-lab-1-n1.told")) << Content("ty-s1-lab-1.log");
  EXPECT_TRUE(WaitFor(slurm, kPilot, ForeignState::kCompleted)) << Content("ty-s1-lab-1.log");
}

}  // namespace
}  // namespace trainyard::provision::slurm
