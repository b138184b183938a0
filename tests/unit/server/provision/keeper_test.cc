// Tests the keeper with a real writer and a cluster that the test answers for.
#include "server/provision/keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "server/runtime/board.h"
#include "server/runtime/notifier.h"
#include "server/store/memory_store.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/wait.h"

namespace trainyard::provision {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::trainyard::testing::WaitUntil;

// Allocations as a cluster has them.
struct FakeState {
  Mutex mutex;
  std::vector<ListedPilot> pilots ABSL_GUARDED_BY(mutex);
  std::vector<std::string> tokens ABSL_GUARDED_BY(mutex);
  std::vector<std::string> cancelled ABSL_GUARDED_BY(mutex);
  std::vector<std::string> dropped ABSL_GUARDED_BY(mutex);
  std::string revoked_but ABSL_GUARDED_BY(mutex);
  // The next submissions reach the cluster without the tokens, and nobody hears of them.
  int interruptions ABSL_GUARDED_BY(mutex) = 0;
  std::set<std::string> without_tokens ABSL_GUARDED_BY(mutex);
  // The lists of this provider wait, and so many do now.
  CondVar changed;
  std::string held ABSL_GUARDED_BY(mutex);
  int waiting ABSL_GUARDED_BY(mutex) = 0;
};

class FakeCluster : public Cluster {
 public:
  FakeCluster(FakeState& state, std::string provider, const std::atomic<bool>& is_stopping)
      : state_(state), provider_(std::move(provider)), is_stopping_(is_stopping) {}
  absl::Status TryOut() const override { return absl::OkStatus(); }
  SubmitResult Submit(const std::string& pilot,
                      const std::vector<std::string>& tokens) const override {
    const MutexLock lock(&state_.mutex);
    ListedPilot listed;
    listed.name = pilot;
    listed.foreign_id = absl::StrCat(state_.pilots.size() + 1);
    listed.state = ForeignState::kActive;
    state_.pilots.push_back(listed);
    if (state_.interruptions > 0) {
      state_.interruptions -= 1;
      state_.without_tokens.insert(pilot);
      return {pilot, SubmitResult::Kind::kUnknown, "", "the answer was lost"};
    }
    state_.tokens.insert(state_.tokens.end(), tokens.begin(), tokens.end());
    return {pilot, SubmitResult::Kind::kAccepted, listed.foreign_id, ""};
  }
  Listing List(const std::vector<std::string>&) const override {
    const MutexLock lock(&state_.mutex);
    state_.waiting += 1;
    while (state_.held == provider_ && !is_stopping_) {
      state_.changed.WaitWithTimeout(&state_.mutex, absl::Milliseconds(10));
    }
    state_.waiting -= 1;
    Listing listing;
    listing.begin_us = absl::ToUnixMicros(Clock::Real()->Now());
    listing.pilots = state_.pilots;
    return listing;
  }
  absl::StatusOr<bool> LacksTokens(const std::string& pilot) const override {
    const MutexLock lock(&state_.mutex);
    return state_.without_tokens.contains(pilot);
  }
  absl::Status Cancel(const std::string& foreign_id) const override {
    const MutexLock lock(&state_.mutex);
    state_.cancelled.push_back(foreign_id);
    for (ListedPilot& pilot : state_.pilots) {
      if (pilot.foreign_id == foreign_id) pilot.state = ForeignState::kCancelled;
    }
    return absl::OkStatus();
  }
  void DropTokens(const std::string& pilot) const override {
    const MutexLock lock(&state_.mutex);
    state_.dropped.push_back(pilot);
  }

 private:
  FakeState& state_;
  const std::string provider_;
  const std::atomic<bool>& is_stopping_;
};

class KeeperTest : public ::testing::Test {
 protected:
  KeeperTest() {
    runtime::Runtime::Options options;
    options.on_fatal = [](const absl::Status& status) { TY_CHECK_OK(status); };
    runtime_ = *runtime::Runtime::Start(std::move(options), memory_, *Clock::Real(), board_);
    store_ = *ProviderStore::Open(dir_.File("providers.db"));
    Start();
  }

  void Start() {
    Keeper::Options options;
    options.server_id = "1a2b";
    options.look_every = absl::Milliseconds(20);
    options.list_every = absl::Milliseconds(20);
    options.connect = [this](const std::string&, const ProviderSpec& spec, const ClusterOptions&,
                             const std::atomic<bool>& is_stopping) {
      if (is_unreachable_) {
        return absl::StatusOr<std::unique_ptr<Cluster>>(
            absl::NotFoundError("there is no such file"));
      }
      return absl::StatusOr<std::unique_ptr<Cluster>>(
          std::make_unique<FakeCluster>(cluster_, spec.name, is_stopping));
    };
    options.invite = [](const std::string& worker) { return absl::StrCat("token of ", worker); };
    options.revoke_but = [this](const std::string& prefix, const std::set<std::string>& pilots) {
      const MutexLock lock(&cluster_.mutex);
      cluster_.revoked_but = absl::StrCat(prefix, ":", absl::StrJoin(pilots, ","));
    };
    keeper_ = *Keeper::Open(std::move(options), *store_, *runtime_, *Clock::Real());
    keeper_->Start();
  }

  absl::Status Apply(core::Input input) {
    std::promise<absl::Status> done;
    runtime_->Post(std::move(input), [&done](const absl::StatusOr<core::Reply>& reply) {
      done.set_value(reply.status());
    });
    return done.get_future().get();
  }

  void SubmitJob(const std::string& type = "cpu", int64_t memory_bytes = 0,
                 const std::string& dataset = "") {
    auto submission = std::make_shared<core::Submission>();
    submission->uid = absl::StrCat("uid-", ++jobs_);
    submission->name = "job";
    submission->user = "anna";
    submission->resolved_spec = "spec";
    submission->demand = {1, type, false};
    submission->demand.memory_bytes = memory_bytes;
    submission->demand.dataset = dataset;
    submission->wait_for_devices = true;
    submission->disconnect_keep_us = kMinuteUs;
    TY_CHECK_OK(Apply(core::SubmitJob{submission, "", "", "user:anna"}));
  }

  // The worker of a pilot registers, and reports that nothing runs.
  void Join(const std::string& worker) {
    core::DeviceRecord device;
    device.name = "cpu-0";
    device.type = "cpu";
    TY_CHECK_OK(Apply(
        core::RegisterWorker{worker, worker, "session", "1.0", worker, "10.0.0.1", {device}}));
    core::SyncReport report;
    report.session = "session";
    report.sequence = 1;
    TY_CHECK_OK(Apply(report));
  }

  static ProviderSpec Spec() {
    ProviderSpec spec;
    spec.name = "lab";
    spec.owner = "anna";
    spec.max_pilots = 3;
    return spec;
  }

  std::vector<ListedPilot> Pilots() {
    const MutexLock lock(&cluster_.mutex);
    return cluster_.pilots;
  }

  // The cluster of the provider answers no list until another one is named. Returns once it is
  // asked.
  void Hold(const std::string& provider) {
    {
      const MutexLock lock(&cluster_.mutex);
      cluster_.held = provider;
      cluster_.changed.SignalAll();
    }
    if (provider.empty()) return;
    ASSERT_TRUE(WaitUntil([this] {
      const MutexLock lock(&cluster_.mutex);
      return cluster_.waiting > 0;
    }));
  }

  testing::TempDir dir_;
  store::MemoryStore memory_;
  runtime::Notifier notifier_;
  runtime::Board board_{notifier_};
  FakeState cluster_;
  std::unique_ptr<runtime::Runtime> runtime_;
  std::unique_ptr<ProviderStore> store_;
  std::unique_ptr<Keeper> keeper_;
  std::atomic<bool> is_unreachable_ = false;
  int jobs_ = 0;
};

TEST_F(KeeperTest, AsksForAPilotWhenAJobWaitsAndKnowsWhenItHasConnected) {
  ASSERT_TRUE(keeper_->Set(Spec(), {}, /*is_new=*/true).ok());
  EXPECT_EQ(ErrorReason(keeper_->Set(Spec(), {}, /*is_new=*/true)), "PROVIDER_EXISTS");
  SubmitJob();
  ASSERT_TRUE(WaitUntil([this] { return !Pilots().empty(); }));
  const std::string name = Pilots()[0].name;
  EXPECT_EQ(name, "ty-1a2b-lab-1");
  {
    const MutexLock lock(&cluster_.mutex);
    EXPECT_THAT(cluster_.tokens, ElementsAre(absl::StrCat("token of ", name)));
  }
  const auto state = [this] { return keeper_->Find("lab")->provider.pilots.at(1).state; };
  ASSERT_TRUE(WaitUntil([&] { return state() == PilotState::kStarting; }));
  Join(name);
  EXPECT_TRUE(WaitUntil([&] { return state() == PilotState::kRunning; }));
  EXPECT_THAT(Pilots(), SizeIs(1)) << "one is enough for the job";
}

TEST_F(KeeperTest, AsksForNothingWithoutDemandAndWhilePaused) {
  ASSERT_TRUE(keeper_->Set(Spec(), {}, /*is_new=*/true).ok());
  ASSERT_TRUE(WaitUntil([this] { return keeper_->Find("lab")->provider.listing_us > 0; }));
  EXPECT_THAT(Pilots(), IsEmpty());
  ASSERT_TRUE(
      keeper_->Change([](State& state) { return PauseProvider(state, "lab", "maintenance"); })
          .ok());
  SubmitJob();
  const int64_t listed = keeper_->Find("lab")->provider.listing_us;
  ASSERT_TRUE(WaitUntil([&] { return keeper_->Find("lab")->provider.listing_us > listed; }));
  EXPECT_THAT(Pilots(), IsEmpty());
  ASSERT_TRUE(keeper_->Change([](State& state) { return ResumeProvider(state, "lab"); }).ok());
  EXPECT_TRUE(WaitUntil([this] { return !Pilots().empty(); }));
}

TEST_F(KeeperTest, SaysWhyAClusterCannotBeReachedAndTriesAgain) {
  is_unreachable_ = true;
  ASSERT_TRUE(keeper_->Set(Spec(), {}, /*is_new=*/true).ok());
  const auto failure = [this] { return keeper_->Find("lab")->provider.listing_failure; };
  EXPECT_TRUE(WaitUntil([&] { return failure() == "there is no such file"; }));
  is_unreachable_ = false;
  EXPECT_TRUE(WaitUntil([this] { return keeper_->Find("lab")->provider.listing_us > 0; }));
  EXPECT_EQ(failure(), "");
}

TEST_F(KeeperTest, APilotWithTheWrongDevicesIsEndedWithTheReason) {
  ProviderSpec spec = Spec();
  spec.node.device_type = "h200";
  ASSERT_TRUE(keeper_->Set(spec, {}, /*is_new=*/true).ok());
  // The memory of a card that nobody has seen may be enough.
  SubmitJob("h200", int64_t{40} << 30);
  ASSERT_TRUE(WaitUntil([this] { return !Pilots().empty(); }));
  const std::string name = Pilots()[0].name;
  Join(name);
  const auto reason = [this] { return keeper_->Find("lab")->provider.pilots.at(1).reason; };
  EXPECT_TRUE(WaitUntil([&] {
    return reason() == "its worker ty-1a2b-lab-1 has 1 x cpu, and the provider says 1 x h200";
  })) << reason();
  // Nobody joins with what was its token any more.
  EXPECT_TRUE(WaitUntil([&] {
    const MutexLock lock(&cluster_.mutex);
    return !cluster_.dropped.empty() && cluster_.dropped[0] == name;
  }));
  EXPECT_TRUE(WaitUntil([&] {
    const MutexLock lock(&cluster_.mutex);
    return !absl::StrContains(cluster_.revoked_but, name) &&
           absl::StartsWith(cluster_.revoked_but, "ty-1a2b-:");
  }));
}

TEST_F(KeeperTest, APilotIsAskedForWhereTheDataIs) {
  ProviderSpec without = Spec();
  without.datasets = {"mnist"};
  ASSERT_TRUE(keeper_->Set(without, {}, /*is_new=*/true).ok());
  ProviderSpec with = Spec();
  with.name = "store";
  with.datasets = {"mnist", "cifar10"};
  with.preference = 1;  // it is asked after the other one
  ASSERT_TRUE(keeper_->Set(with, {}, /*is_new=*/true).ok());
  SubmitJob("cpu", 0, "cifar10");
  ASSERT_TRUE(WaitUntil([this] { return !Pilots().empty(); }));
  EXPECT_EQ(Pilots()[0].name, "ty-1a2b-store-1");
  // Once the other one is said to have the data it is asked as before.
  without.datasets.push_back("imagenet");
  ASSERT_TRUE(keeper_->Set(without, {}, /*is_new=*/false).ok());
  SubmitJob("cpu", 0, "imagenet");
  ASSERT_TRUE(WaitUntil([this] { return Pilots().size() == 2; }));
  EXPECT_EQ(keeper_->Find("lab")->provider.pilots.size(), 1u);
}

TEST_F(KeeperTest, ProvidersOfManyNodesAreAsked) {
  ProviderSpec spec = Spec();
  spec.nodes = 100;
  ASSERT_TRUE(keeper_->Set(spec, {}, /*is_new=*/true).ok());
  SubmitJob();
  EXPECT_TRUE(WaitUntil([this] { return !Pilots().empty(); }));
}

TEST_F(KeeperTest, AServerKeepsTheIdOfItsPilotsFromItsFirstStart) {
  keeper_.reset();
  EXPECT_EQ(store_->Load()->state.server_id, "1a2b");
}

TEST_F(KeeperTest, APilotThatLacksItsTokensIsGivenUpAtOnceAndAskedForAnew) {
  {
    const MutexLock lock(&cluster_.mutex);
    cluster_.interruptions = 1;
  }
  ProviderSpec spec = Spec();
  spec.submit_interval_us = 0;
  ASSERT_TRUE(keeper_->Set(spec, {}, /*is_new=*/true).ok());
  SubmitJob();
  ASSERT_TRUE(WaitUntil([this] { return Pilots().size() == 2; }));
  {
    const MutexLock lock(&cluster_.mutex);
    EXPECT_EQ(cluster_.cancelled.front(), "1");
  }
  const auto pilots = keeper_->Find("lab")->provider.pilots;
  EXPECT_EQ(pilots.at(1).state, PilotState::kEnded);
  EXPECT_THAT(pilots.at(1).reason, HasSubstr("before the tokens of the workers were there"));
  // One with its tokens is adopted although its answer was lost.
  EXPECT_TRUE(WaitUntil([this] {
    return keeper_->Find("lab")->provider.pilots.at(2).state == PilotState::kStarting;
  }));
}

TEST_F(KeeperTest, AClusterThatDoesNotAnswerHoldsUpItsOwnProviderAlone) {
  ProviderSpec slow = Spec();
  slow.name = "slow";
  ASSERT_TRUE(keeper_->Set(slow, {}, /*is_new=*/true).ok());
  ASSERT_TRUE(WaitUntil([this] { return keeper_->Find("slow")->provider.listing_us > 0; }));
  ASSERT_TRUE(
      keeper_->Change([](State& state) { return PauseProvider(state, "slow", "it is"); }).ok());
  Hold("slow");
  slow.cost_per_hour = 2;
  ASSERT_TRUE(keeper_->Set(slow, {}, /*is_new=*/false).ok());
  ASSERT_TRUE(keeper_->Set(Spec(), {}, /*is_new=*/true).ok());
  SubmitJob();
  ASSERT_TRUE(WaitUntil([this] { return !Pilots().empty(); }));
  EXPECT_EQ(Pilots()[0].name, "ty-1a2b-lab-1");
  ASSERT_TRUE(keeper_->Change([](State& state) { return RemoveProvider(state, "slow"); }).ok());
  ASSERT_TRUE(WaitUntil([this] { return !keeper_->Find("slow").ok(); }));
  const int64_t listed = keeper_->Find("lab")->provider.listing_us;
  EXPECT_TRUE(WaitUntil([&] { return keeper_->Find("lab")->provider.listing_us > listed; }));
  // Nor does it hold up the end of the server.
  const absl::Duration begin = Clock::Real()->Uptime();
  keeper_.reset();
  EXPECT_LT(Clock::Real()->Uptime() - begin, absl::Seconds(10));
}

TEST_F(KeeperTest, AnOrderThatWaitsOutlivesAChangeOfItsProvider) {
  ASSERT_TRUE(keeper_->Set(Spec(), {}, /*is_new=*/true).ok());
  ASSERT_TRUE(WaitUntil([this] { return keeper_->Find("lab")->provider.listing_us > 0; }));
  Hold("lab");
  SubmitJob();
  ASSERT_TRUE(WaitUntil([this] { return !keeper_->Find("lab")->provider.pilots.empty(); }));
  ProviderSpec changed = Spec();
  changed.cost_per_hour = 2;
  ASSERT_TRUE(keeper_->Set(changed, {}, /*is_new=*/false).ok());
  // The keeper has seen the change once the lists of another provider have come twice.
  ProviderSpec other = Spec();
  other.name = "other";
  other.preference = 1;
  ASSERT_TRUE(keeper_->Set(other, {}, /*is_new=*/true).ok());
  for (int i = 0; i < 2; ++i) {
    const int64_t listed = keeper_->Find("other")->provider.listing_us;
    ASSERT_TRUE(WaitUntil([&] { return keeper_->Find("other")->provider.listing_us > listed; }));
  }
  EXPECT_THAT(Pilots(), IsEmpty());
  Hold("");
  ASSERT_TRUE(WaitUntil([this] { return !Pilots().empty(); }));
  EXPECT_EQ(Pilots()[0].name, "ty-1a2b-lab-1");
}

TEST_F(KeeperTest, AfterAStartItFindsItsPilotAndAsksForNoSecondOne) {
  ASSERT_TRUE(keeper_->Set(Spec(), {}, /*is_new=*/true).ok());
  SubmitJob();
  ASSERT_TRUE(WaitUntil([this] { return !Pilots().empty(); }));
  keeper_.reset();
  {
    const MutexLock lock(&cluster_.mutex);
    cluster_.pilots[0].state = ForeignState::kWaiting;
  }
  Start();
  const auto pilots = [this] { return keeper_->Find("lab")->provider.pilots; };
  ASSERT_TRUE(WaitUntil([&] {
    const auto known = pilots();
    return known.contains(1) && known.at(1).state == PilotState::kQueued;
  }));
  EXPECT_THAT(Pilots(), SizeIs(1));
  ASSERT_TRUE(keeper_->Change([](State& state) { return RemoveProvider(state, "lab"); }).ok());
  EXPECT_TRUE(WaitUntil([this] {
    const MutexLock lock(&cluster_.mutex);
    return !cluster_.cancelled.empty();
  }));
}

}  // namespace
}  // namespace trainyard::provision
