#include "server/runtime/audit_log.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>

#include "absl/synchronization/notification.h"
#include "server/store/memory_access_store.h"
#include "tests/testing/manual_clock.h"

namespace trainyard::runtime {
namespace {

access::AuditRecord Entry(const std::string& user) {
  access::AuditRecord entry;
  entry.user = user;
  entry.rpc = "JobService/CancelJob";
  return entry;
}

class AuditLogTest : public ::testing::Test {
 protected:
  testing::ManualClock clock_;
  store::MemoryAccessStore store_;
};

TEST_F(AuditLogTest, EntriesHaveTheTimeOfTheirCalls) {
  AuditLog log(store_, clock_, absl::InfiniteDuration());
  log.Add(Entry("anna"));
  clock_.Advance(absl::Seconds(5));
  log.Add(Entry("bert"));
  log.Flush();
  const auto entries = *store_.ListAudit({});
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].user, "bert");
  EXPECT_EQ(entries[0].time_us - entries[1].time_us, 5'000'000);
}

TEST_F(AuditLogTest, TheEndWritesWhatWaits) {
  {
    AuditLog log(store_, clock_, absl::InfiniteDuration());
    for (int i = 0; i < 100; ++i) log.Add(Entry("anna"));
  }
  EXPECT_EQ(store_.ListAudit({})->size(), 100U);
}

TEST_F(AuditLogTest, OldEntriesAreDeleted) {
  {
    AuditLog log(store_, clock_, absl::InfiniteDuration());
    log.Add(Entry("anna"));
    log.Flush();
    clock_.Advance(absl::Hours(2));
    log.Add(Entry("bert"));
  }
  std::optional<AuditLog> log(std::in_place, store_, clock_, absl::Hours(1));
  log.reset();
  const auto entries = *store_.ListAudit({});
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(entries[0].user, "bert");
}

// Holds up each append until a test lets it go.
class SlowStore : public store::MemoryAccessStore {
 public:
  absl::Status AppendAudit(const std::vector<access::AuditRecord>& entries) override {
    {
      const MutexLock lock(&mutex_);
      is_held_ = true;
      changed_.SignalAll();
      while (!may_go_) changed_.Wait(&mutex_);
    }
    return MemoryAccessStore::AppendAudit(entries);
  }
  void WaitUntilHeld() {
    const MutexLock lock(&mutex_);
    while (!is_held_) changed_.Wait(&mutex_);
  }
  void LetGo() {
    const MutexLock lock(&mutex_);
    may_go_ = true;
    changed_.SignalAll();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool is_held_ ABSL_GUARDED_BY(mutex_) = false;
  bool may_go_ ABSL_GUARDED_BY(mutex_) = false;
};

TEST_F(AuditLogTest, ADiskThatIsTooSlowCostsEntriesAndTheLogSaysSo) {
  SlowStore slow;
  {
    AuditLog log(slow, clock_, absl::InfiniteDuration());
    log.Add(Entry("first"));
    slow.WaitUntilHeld();
    for (size_t i = 0; i < AuditLog::kWaitingMax + 3; ++i) log.Add(Entry("anna"));
    slow.LetGo();
  }
  const auto newest = slow.ListAudit({.limit = 1})->at(0);
  EXPECT_EQ(newest.rpc, "AuditLog/Lost");
  EXPECT_EQ(newest.reason, "3 entries are missing here, because the disk was too slow");
}

// Gets a new entry whenever it writes one, until a test stops it.
class EchoingStore : public store::MemoryAccessStore {
 public:
  absl::Status AppendAudit(const std::vector<access::AuditRecord>& entries) override {
    if (!is_stopped) log->Add(Entry("echo"));
    return MemoryAccessStore::AppendAudit(entries);
  }

  AuditLog* log = nullptr;
  std::atomic<bool> is_stopped = false;
};

TEST_F(AuditLogTest, AFlushEndsHoweverManyEntriesComeMeanwhile) {
  EchoingStore echoing;
  AuditLog log(echoing, clock_, absl::InfiniteDuration());
  echoing.log = &log;
  absl::Notification is_flushed;
  log.Add(Entry("anna"));
  std::thread flush([&] {
    log.Flush();
    is_flushed.Notify();
  });
  EXPECT_TRUE(is_flushed.WaitForNotificationWithTimeout(absl::Seconds(30)));
  echoing.is_stopped = true;
  flush.join();
  EXPECT_FALSE(echoing.ListAudit({.user = "anna"})->empty());
}

}  // namespace
}  // namespace trainyard::runtime
