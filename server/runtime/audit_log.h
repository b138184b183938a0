// Writes the audit log, so that no call waits for its entry. Entries of calls that come together
// are committed together.
#pragma once

#include <cstdint>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "server/access/audit.h"
#include "server/store/access_store.h"

namespace trainyard::runtime {

// Owns a thread. The class is thread-safe and borrows everything that it is given.
class AuditLog {
 public:
  // Entries that wait for the disk. Further ones are counted, and the log says how many they were.
  static constexpr size_t kWaitingMax = 65'536;

  // Entries are deleted once they are older than `keep`.
  AuditLog(store::AccessStore& store, Clock& clock, absl::Duration keep);
  // Writes what waits.
  ~AuditLog();

  // Adds an entry. Its time is filled in.
  void Add(access::AuditRecord entry);
  // Waits until all entries that were added before are on disk, however many come meanwhile.
  void Flush();

 private:
  void Run();
  void Write(std::vector<access::AuditRecord> entries, int64_t lost);
  void DeleteOld();

  store::AccessStore& store_;
  Clock& clock_;
  const absl::Duration keep_;
  Mutex mutex_;
  CondVar changed_;
  CondVar hurry_;  // somebody waits for entries that are gathered
  CondVar written_;
  std::vector<access::AuditRecord> waiting_ ABSL_GUARDED_BY(mutex_);
  int64_t lost_ ABSL_GUARDED_BY(mutex_) = 0;
  // The entries that were ever added, and those of them that were written or lost.
  int64_t added_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t done_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t wanted_ ABSL_GUARDED_BY(mutex_) = 0;  // somebody waits until so many are done
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace trainyard::runtime
