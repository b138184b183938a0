// Tests how messengers end: a call of the cluster may be under way then, and orders may wait.
#include "server/provision/messenger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/env.h"
#include "tests/testing/wait.h"

namespace trainyard::provision {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::trainyard::testing::WaitUntil;

// Calls as the cluster was given them. While `is_held`, a call waits for its end.
struct Calls {
  Mutex mutex;
  CondVar changed;
  bool is_held ABSL_GUARDED_BY(mutex) = false;
  int waiting ABSL_GUARDED_BY(mutex) = 0;
  std::vector<std::string> done ABSL_GUARDED_BY(mutex);
};

class SlowCluster : public Cluster {
 public:
  SlowCluster(Calls& calls, const std::atomic<bool>& is_stopping)
      : calls_(calls), is_stopping_(is_stopping) {}
  absl::Status TryOut() const override { return absl::OkStatus(); }
  SubmitResult Submit(const std::string& pilot, const std::vector<std::string>&) const override {
    Call(absl::StrCat("submit ", pilot));
    return {pilot, SubmitResult::Kind::kAccepted, pilot, ""};
  }
  Listing List(const std::vector<std::string>&) const override { return {}; }
  absl::Status Cancel(const std::string& foreign_id) const override {
    Call(absl::StrCat("cancel ", foreign_id));
    return absl::OkStatus();
  }
  void DropTokens(const std::string& pilot) const override { Call(absl::StrCat("drop ", pilot)); }

 private:
  void Call(std::string what) const {
    const MutexLock lock(&calls_.mutex);
    calls_.waiting += 1;
    while (calls_.is_held && !is_stopping_) {
      calls_.changed.WaitWithTimeout(&calls_.mutex, absl::Milliseconds(10));
    }
    calls_.waiting -= 1;
    calls_.done.push_back(std::move(what));
  }

  Calls& calls_;
  const std::atomic<bool>& is_stopping_;
};

class MessengerTest : public ::testing::Test {
 protected:
  std::unique_ptr<Messenger> Make() {
    auto is_stopping = std::make_unique<std::atomic<bool>>(false);
    auto cluster = std::make_unique<SlowCluster>(calls_, *is_stopping);
    return std::make_unique<Messenger>(
        std::move(is_stopping), std::move(cluster), 1,
        [](const std::string&) { return std::string("token"); }, absl::Milliseconds(20));
  }
  void Hold(bool is_held) {
    const MutexLock lock(&calls_.mutex);
    calls_.is_held = is_held;
    calls_.changed.SignalAll();
  }
  // The first of these orders is under way afterwards, and the others wait.
  void GiveOrders(Messenger& messenger) {
    Hold(true);
    messenger.Cancel("1");
    ASSERT_TRUE(WaitUntil([this] {
      const MutexLock lock(&calls_.mutex);
      return calls_.waiting == 1;
    }));
    messenger.Submit("a");
    messenger.Cancel("2");
    messenger.DropTokens("b");
  }
  std::vector<std::string> Done() {
    const MutexLock lock(&calls_.mutex);
    return calls_.done;
  }

  Calls calls_;
};

TEST_F(MessengerTest, AllOrdersAreCarriedOutForAProviderThatGoes) {
  const auto messenger = Make();
  GiveOrders(*messenger);
  messenger->Finish();
  EXPECT_FALSE(messenger->IsOver());
  Hold(false);
  EXPECT_TRUE(WaitUntil([&] { return messenger->IsOver(); }));
  EXPECT_THAT(Done(), ElementsAre("cancel 1", "submit a", "cancel 2", "drop b"));
}

TEST_F(MessengerTest, OrdersOfOneThatRetiresAreTakenOver) {
  const auto old = Make();
  GiveOrders(*old);
  old->Retire();
  old->Cancel("2");
  old->Cancel("3");
  EXPECT_FALSE(old->IsOver());
  Hold(false);
  ASSERT_TRUE(WaitUntil([&] { return old->IsOver(); }));
  EXPECT_THAT(Done(), ElementsAre("cancel 1"));
  old->DropTokens("c");
  const auto made = Make();
  made->TakeOver(*old);
  EXPECT_TRUE(WaitUntil([this] { return Done().size() == 6; }));
  EXPECT_THAT(Done(),
              ElementsAre("cancel 1", "submit a", "cancel 2", "drop b", "cancel 3", "drop c"));
  EXPECT_THAT(old->TakeNews().submitted, IsEmpty());
  ASSERT_TRUE(WaitUntil([&] { return !made->TakeNews().submitted.empty(); }));
}

TEST_F(MessengerTest, ResultsOfOneThatRetiresAreTakenOver) {
  const auto old = Make();
  old->Submit("a");
  ASSERT_TRUE(WaitUntil([this] { return Done().size() == 1; }));
  old->Retire();
  ASSERT_TRUE(WaitUntil([&] { return old->IsOver(); }));
  const auto made = Make();
  made->TakeOver(*old);
  const ProviderNews news = made->TakeNews();
  ASSERT_EQ(news.submitted.size(), 1);
  EXPECT_EQ(news.submitted[0].pilot, "a");
}

TEST_F(MessengerTest, AServerThatStopsWaitsForNoCall) {
  auto messenger = Make();
  GiveOrders(*messenger);
  messenger->Stop();
  EXPECT_TRUE(WaitUntil([&] { return messenger->IsOver(); }));
  EXPECT_THAT(Done(), ElementsAre("cancel 1"));
}

}  // namespace
}  // namespace trainyard::provision
