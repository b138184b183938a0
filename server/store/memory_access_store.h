// Keeps users, projects and the audit log in memory, for tests.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/mutex.h"
#include "server/store/access_store.h"

namespace trainyard::store {

class MemoryAccessStore : public AccessStore {
 public:
  absl::StatusOr<std::vector<access::UserRecord>> ListUsers() override;
  absl::Status PutUser(const access::UserRecord& user) override;
  absl::Status DeleteUser(const std::string& name) override;
  absl::StatusOr<std::vector<access::ProjectRecord>> ListProjects() override;
  absl::Status PutProject(const access::ProjectRecord& project) override;
  absl::Status DeleteProject(const std::string& name) override;
  absl::StatusOr<std::vector<access::TokenRecord>> ListTokens() override;
  absl::Status PutToken(const access::TokenRecord& token) override;
  absl::Status DeleteToken(const std::string& id) override;
  absl::StatusOr<std::vector<access::RemovedWorker>> ListRemovedWorkers() override;
  absl::Status PutRemovedWorker(const access::RemovedWorker& worker) override;
  absl::Status AppendAudit(const std::vector<access::AuditRecord>& entries) override;
  absl::StatusOr<std::vector<access::AuditRecord>> ListAudit(
      const access::AuditFilter& filter) override;
  absl::StatusOr<int64_t> DeleteAudit(int64_t before_us, int64_t limit) override;

 private:
  access::Directory directory_;
  Mutex mutex_;
  std::deque<access::AuditRecord> audit_ ABSL_GUARDED_BY(mutex_);              // oldest first
  std::map<std::string, access::TokenRecord> tokens_ ABSL_GUARDED_BY(mutex_);  // by id
  std::map<std::string, access::RemovedWorker> removed_workers_ ABSL_GUARDED_BY(mutex_);
  int64_t last_sequence_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace trainyard::store
