// Defines the port to what was set about users and projects, and to the audit log. They have a file
// of their own, so that a backup of the jobs says nothing about rights, and a flood of refused
// calls never delays a job.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/access/audit.h"
#include "server/access/directory.h"
#include "server/access/removed_workers.h"
#include "server/access/tokens.h"

namespace trainyard::store {

// Implementations are thread-safe. What a call has changed is on disk when it returns.
class AccessStore {
 public:
  virtual ~AccessStore() = default;

  virtual absl::StatusOr<std::vector<access::UserRecord>> ListUsers() = 0;
  virtual absl::Status PutUser(const access::UserRecord& user) = 0;
  virtual absl::Status DeleteUser(const std::string& name) = 0;

  virtual absl::StatusOr<std::vector<access::ProjectRecord>> ListProjects() = 0;
  virtual absl::Status PutProject(const access::ProjectRecord& project) = 0;
  virtual absl::Status DeleteProject(const std::string& name) = 0;

  virtual absl::StatusOr<std::vector<access::TokenRecord>> ListTokens() = 0;
  // Writes a token, in place of what was stored under its id.
  virtual absl::Status PutToken(const access::TokenRecord& token) = 0;
  virtual absl::Status DeleteToken(const std::string& id) = 0;

  virtual absl::StatusOr<std::vector<access::RemovedWorker>> ListRemovedWorkers() = 0;
  virtual absl::Status PutRemovedWorker(const access::RemovedWorker& worker) = 0;

  // Appends entries, which get sequence numbers in their order.
  virtual absl::Status AppendAudit(const std::vector<access::AuditRecord>& entries) = 0;
  // Returns entries, newest first.
  virtual absl::StatusOr<std::vector<access::AuditRecord>> ListAudit(
      const access::AuditFilter& filter) = 0;
  // Deletes at most `limit` entries that are older than `before_us`, oldest first, and returns how
  // many they were.
  virtual absl::StatusOr<int64_t> DeleteAudit(int64_t before_us, int64_t limit) = 0;
};

}  // namespace trainyard::store
