// Users submit, cancel, suspend, resume, clone, delete, get, list and watch jobs of a real server,
// which is killed and started again meanwhile. Whatever they saw must have an explanation.
//
// TRAINYARD_LINEARIZABILITY=N makes N rounds in place of one; `make linearizability` sets it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/integration/yard.h"
#include "tests/linearizability/judge.h"
#include "tests/linearizability/lying_proxy.h"
#include "tests/linearizability/users.h"
#include "tests/testing/wait.h"

namespace trainyard::linearizability {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;

struct Plan {
  uint64_t seed = 1;
  int users = 5;
  int things = 150;  // that each user does
  int kills = 4;
  int run_percent = 30;  // of the submissions can be placed
};

// Runs the users of a plan in threads of their own until they are done.
class Crowd {
 public:
  Crowd(const Plan& plan, const std::string& address) {
    for (int i = 0; i < plan.users; ++i) {
      // The streams of random numbers of all users and seeds are apart.
      const uint64_t seed = plan.seed * 1000 + static_cast<uint64_t>(i);
      threads_.emplace_back([this, &plan, address, i, seed] {
        User(recorder_, address, i, seed, plan.run_percent).Act(plan.things);
        ++done_;
      });
    }
  }
  ~Crowd() { Join(); }

  void Join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  bool IsDone(const Plan& plan) const { return done_ == plan.users; }
  Recorder& recorder() { return recorder_; }

 private:
  Recorder recorder_;
  std::atomic<int> done_ = 0;
  std::vector<std::thread> threads_;
};

testing::Yard::Options NoopOptions() {
  testing::Yard::Options options;
  options.worker_flags = {"--trainer", testing::Yard::Binary("noop_trainer"), "--share_cpus"};
  return options;
}

bool HasMovingJobs(testing::Yard& yard) {
  v1::ListJobsRequest request;
  request.set_page_size(1000);
  for (const auto state : {v1::JOB_STATE_QUEUED, v1::JOB_STATE_STARTING, v1::JOB_STATE_RUNNING,
                           v1::JOB_STATE_STOPPING}) {
    request.add_states(state);
  }
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  v1::ListJobsResponse response;
  if (!yard.jobs().ListJobs(&context, request, &response).ok()) return true;
  for (const v1::Job& job : response.jobs()) {
    if (job.resolved_spec().devices().labels().empty()) return true;
  }
  return false;
}

// Kills the server at moments that the seed draws among the calls of the users. Returns the number
// of kills.
int KillServer(const Plan& plan, testing::Yard& yard, Crowd& crowd) {
  std::mt19937_64 random(plan.seed);
  const int64_t calls = int64_t{plan.users} * plan.things;
  int kills = 0;
  for (int i = 0; i < plan.kills; ++i) {
    const int64_t span = calls / (plan.kills + 1);
    const int64_t moment = i * span + static_cast<int64_t>(random() % static_cast<uint64_t>(span));
    EXPECT_TRUE(
        testing::WaitUntil([&] { return crowd.recorder().calls() >= moment || crowd.IsDone(plan); },
                           testing::kPatience));
    if (crowd.IsDone(plan)) break;
    yard.KillServer();
    yard.StartServer();
    ++kills;
  }
  return kills;
}

struct Round {
  History history;
  int kills = 0;
};

Round RunRound(const Plan& plan) {
  testing::Yard yard(NoopOptions());
  yard.Start();
  Round round;
  Crowd crowd(plan, yard.address());
  Watcher watcher(crowd.recorder(), yard.address(), plan.users);
  std::thread watching([&watcher] { watcher.Run(); });
  round.kills = KillServer(plan, yard, crowd);
  crowd.Join();
  EXPECT_TRUE(testing::WaitUntil([&yard] { return !HasMovingJobs(yard); }, testing::kPatience));
  User reader(crowd.recorder(), yard.address(), plan.users + 1, plan.seed, 0);
  const std::vector<Sighting> last = reader.List();
  EXPECT_TRUE(testing::WaitUntil([&] { return watcher.HasSeen(last); }, testing::kPatience))
      << "the watch has lost a change";
  watcher.Stop();
  watching.join();
  round.history = crowd.recorder().Take();
  return round;
}

int64_t Unknown(const History& history) {
  return std::count_if(history.begin(), history.end(), [](const Operation& operation) {
    return operation.answer == Answer::kUnknown;
  });
}

int Rounds() {
  constexpr int kShort = 1;
  const char* const wanted = std::getenv("TRAINYARD_LINEARIZABILITY");
  int rounds = kShort;
  return wanted != nullptr && absl::SimpleAtoi(wanted, &rounds) ? rounds : kShort;
}

TEST(Linearizability, UsersOfAServerThatIsKilledSeeOneOrderOfAllEffects) {
  int64_t operations = 0;
  int64_t unknown = 0;
  int64_t jobs = 0;
  int64_t kills = 0;
  int64_t anomalies = 0;
  int64_t undecided = 0;
  const int rounds = Rounds();
  for (int i = 1; i <= rounds; ++i) {
    Plan plan;
    plan.seed = static_cast<uint64_t>(i);
    const Round round = RunRound(plan);
    const Judgement judgement = Judge(round.history);
    EXPECT_THAT(judgement.anomalies, IsEmpty()) << "with seed " << plan.seed;
    EXPECT_THAT(judgement.undecided, IsEmpty()) << "with seed " << plan.seed;
    operations += static_cast<int64_t>(round.history.size());
    unknown += Unknown(round.history);
    jobs += judgement.jobs;
    kills += round.kills;
    anomalies += static_cast<int64_t>(judgement.anomalies.size());
    undecided += static_cast<int64_t>(judgement.undecided.size());
  }
  EXPECT_GE(kills, rounds);
  EXPECT_GT(unknown, 0) << "no kill has broken a call";
  std::printf(
      "histories=%d operations=%ld unknown=%ld jobs=%ld kills=%ld anomalies=%ld "
      "undecided=%ld\n",
      rounds, operations, unknown, jobs, kills, anomalies, undecided);
}

class LyingServer : public ::testing::TestWithParam<Lie> {};

// The histories are of a real server; only what stands before it lies.
TEST_P(LyingServer, IsCaught) {
  Plan plan;
  plan.users = 4;
  plan.things = 60;
  plan.run_percent = 0;
  // A lie shows only if users look at the same job in the right order, which is left to chance.
  for (plan.seed = 1; plan.seed <= 5; ++plan.seed) {
    testing::Yard yard;
    yard.StartServer();
    const std::string address = absl::StrCat("unix:", yard.File("proxy.sock"));
    const LyingProxy proxy(GetParam(), address, yard.address());
    Crowd crowd(plan, address);
    crowd.Join();
    const Judgement judgement = Judge(crowd.recorder().Take());
    EXPECT_THAT(judgement.undecided, IsEmpty());
    if (GetParam() == Lie::kNone) {
      EXPECT_THAT(judgement.anomalies, IsEmpty());
      return;
    }
    if (!judgement.anomalies.empty()) return;
  }
  ADD_FAILURE() << "nobody has noticed the lie";
}

INSTANTIATE_TEST_SUITE_P(Lies, LyingServer,
                         ::testing::Values(Lie::kNone, Lie::kAcknowledgesEarly, Lie::kReadsStale,
                                           Lie::kSubmitsTwice, Lie::kLosesSubmissions));

// A history of a real server no longer has an explanation if one answer in it is changed.
TEST(Linearizability, AChangedAnswerOfARealRunIsCaught) {
  testing::Yard yard;
  yard.StartServer();
  Plan plan;
  plan.users = 3;
  plan.things = 60;
  plan.run_percent = 0;
  Crowd crowd(plan, yard.address());
  crowd.Join();
  const History history = crowd.recorder().Take();
  ASSERT_THAT(Judge(history).anomalies, IsEmpty());
  int changed = 0;
  for (size_t i = 0; i < history.size(); ++i) {
    if (history[i].verb != Verb::kGet || history[i].answer != Answer::kDone) continue;
    History mutated = history;
    Sighting& seen = mutated[i].seen.front();
    seen.phase = seen.phase == Phase::kQueued ? Phase::kSuspended : Phase::kQueued;
    EXPECT_THAT(Judge(mutated).anomalies, Not(IsEmpty())) << Text(mutated[i]);
    ++changed;
  }
  EXPECT_GT(changed, 0);
}

}  // namespace
}  // namespace trainyard::linearizability
