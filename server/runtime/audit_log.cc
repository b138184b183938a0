// Takes all entries that wait, and writes them in one transaction. It gathers them for a moment
// before, because each transaction makes the disk wait, and the commits of jobs wait with it.
#include "server/runtime/audit_log.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/log.h"

namespace trainyard::runtime {
namespace {

constexpr absl::Duration kGatherTime = absl::Milliseconds(50);
constexpr absl::Duration kDeleteInterval = absl::Minutes(10);
// So many entries are deleted at a time, so that new ones do not wait long.
constexpr int64_t kDeleteBatch = 10'000;

}  // namespace

AuditLog::AuditLog(store::AccessStore& store, Clock& clock, absl::Duration keep)
    : store_(store), clock_(clock), keep_(keep) {
  thread_ = std::thread([this] { Run(); });
}

AuditLog::~AuditLog() {
  {
    const MutexLock lock(&mutex_);
    stopping_ = true;
  }
  changed_.SignalAll();
  hurry_.SignalAll();
  thread_.join();
}

void AuditLog::Add(access::AuditRecord entry) {
  entry.time_us = absl::ToUnixMicros(clock_.Now());
  {
    const MutexLock lock(&mutex_);
    if (waiting_.size() >= kWaitingMax) {
      ++lost_;
      return;
    }
    waiting_.push_back(std::move(entry));
    ++added_;
  }
  changed_.SignalAll();
}

void AuditLog::Flush() {
  const MutexLock lock(&mutex_);
  const int64_t added_before = added_;
  wanted_ = std::max(wanted_, added_before);
  hurry_.SignalAll();
  while (done_ < added_before) written_.Wait(&mutex_);
}

void AuditLog::Run() {
  DeleteOld();
  absl::Duration delete_uptime = clock_.Uptime() + kDeleteInterval;
  while (true) {
    std::vector<access::AuditRecord> entries;
    int64_t lost = 0;
    {
      const MutexLock lock(&mutex_);
      if (waiting_.empty() && !stopping_) changed_.WaitWithTimeout(&mutex_, kDeleteInterval);
      if (waiting_.empty() && stopping_) return;
      if (!waiting_.empty() && !stopping_ && done_ >= wanted_) {
        hurry_.WaitWithTimeout(&mutex_, kGatherTime);
      }
      entries.swap(waiting_);
      std::swap(lost, lost_);
    }
    const auto count = static_cast<int64_t>(entries.size());
    if (count > 0) Write(std::move(entries), lost);
    {
      const MutexLock lock(&mutex_);
      done_ += count;
    }
    written_.SignalAll();
    if (clock_.Uptime() < delete_uptime) continue;
    DeleteOld();
    delete_uptime = clock_.Uptime() + kDeleteInterval;
  }
}

void AuditLog::Write(std::vector<access::AuditRecord> entries, int64_t lost) {
  if (lost > 0) {
    access::AuditRecord note;
    note.time_us = absl::ToUnixMicros(clock_.Now());
    note.rpc = "AuditLog/Lost";
    note.reason = absl::StrCat(lost, " entries are missing here, because the disk was too slow");
    entries.push_back(std::move(note));
  }
  const absl::Status status = store_.AppendAudit(entries);
  if (status.ok()) return;
  LogError("entries of the audit log are lost; look at the disk of the state directory",
           {{"entries", absl::StrCat(entries.size())}, {"error", status.ToString()}});
}

void AuditLog::DeleteOld() {
  if (keep_ == absl::InfiniteDuration()) return;
  const int64_t before_us = absl::ToUnixMicros(clock_.Now() - keep_);
  while (true) {
    const auto deleted = store_.DeleteAudit(before_us, kDeleteBatch);
    if (!deleted.ok()) {
      LogWarning("cannot delete old entries of the audit log",
                 {{"error", deleted.status().ToString()}});
    }
    if (deleted.value_or(0) < kDeleteBatch) return;
  }
}

}  // namespace trainyard::runtime
