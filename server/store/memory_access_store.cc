// Does with containers what the store on disk does with tables.
#include "server/store/memory_access_store.h"

namespace trainyard::store {

absl::StatusOr<std::vector<access::UserRecord>> MemoryAccessStore::ListUsers() {
  return directory_.users();
}

absl::Status MemoryAccessStore::PutUser(const access::UserRecord& user) {
  directory_.SetUser(user);
  return absl::OkStatus();
}

absl::Status MemoryAccessStore::DeleteUser(const std::string& name) {
  directory_.DeleteUser(name);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<access::ProjectRecord>> MemoryAccessStore::ListProjects() {
  return directory_.projects();
}

absl::Status MemoryAccessStore::PutProject(const access::ProjectRecord& project) {
  directory_.SetProject(project);
  return absl::OkStatus();
}

absl::Status MemoryAccessStore::DeleteProject(const std::string& name) {
  directory_.DeleteProject(name);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<access::TokenRecord>> MemoryAccessStore::ListTokens() {
  const MutexLock lock(&mutex_);
  std::vector<access::TokenRecord> list;
  for (const auto& [id, token] : tokens_) list.push_back(token);
  return list;
}

absl::Status MemoryAccessStore::PutToken(const access::TokenRecord& token) {
  const MutexLock lock(&mutex_);
  tokens_[token.id] = token;
  return absl::OkStatus();
}

absl::Status MemoryAccessStore::DeleteToken(const std::string& id) {
  const MutexLock lock(&mutex_);
  tokens_.erase(id);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<access::RemovedWorker>> MemoryAccessStore::ListRemovedWorkers() {
  const MutexLock lock(&mutex_);
  std::vector<access::RemovedWorker> list;
  for (const auto& [name, worker] : removed_workers_) list.push_back(worker);
  return list;
}

absl::Status MemoryAccessStore::PutRemovedWorker(const access::RemovedWorker& worker) {
  const MutexLock lock(&mutex_);
  removed_workers_[worker.name] = worker;
  return absl::OkStatus();
}

absl::Status MemoryAccessStore::AppendAudit(const std::vector<access::AuditRecord>& entries) {
  const MutexLock lock(&mutex_);
  for (const access::AuditRecord& entry : entries) {
    audit_.push_back(entry);
    audit_.back().sequence = ++last_sequence_;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<access::AuditRecord>> MemoryAccessStore::ListAudit(
    const access::AuditFilter& filter) {
  const MutexLock lock(&mutex_);
  std::vector<access::AuditRecord> found;
  for (auto entry = audit_.rbegin(); entry != audit_.rend(); ++entry) {
    if (static_cast<int64_t>(found.size()) == filter.limit) break;
    const bool is_wanted =
        entry->sequence < filter.before_sequence && entry->time_us > filter.after_us &&
        (filter.user.empty() || filter.user == entry->user || filter.user == entry->real_user) &&
        (filter.resource.empty() || filter.resource == entry->resource) &&
        !(filter.only_refused && entry->allowed);
    if (is_wanted) found.push_back(*entry);
  }
  return found;
}

absl::StatusOr<int64_t> MemoryAccessStore::DeleteAudit(int64_t before_us, int64_t limit) {
  const MutexLock lock(&mutex_);
  int64_t deleted = 0;
  for (; deleted < limit && !audit_.empty() && audit_.front().time_us < before_us; ++deleted) {
    audit_.pop_front();
  }
  return deleted;
}

}  // namespace trainyard::store
