// Keeps the targets of notifications, and the messages that wait for their delivery. It has a file
// of its own, since addresses of webhooks are as good as passwords, and since its commits delay no
// job.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/ids.h"
#include "common/base/mutex.h"
#include "server/store/sqlite/database.h"

namespace trainyard::store {

// A place to which word of a user's jobs goes. One of `webhook` and `mail` is empty.
struct TargetRecord {
  std::string user;
  std::string name;
  std::string webhook;
  std::string mail;
  uint32_t events = 0;  // a bit for each v1.NotifyEvent
  std::string signing_key;
  int64_t create_us = 0;

  friend bool operator==(const TargetRecord&, const TargetRecord&) = default;
};

enum class DeliveryState { kPending, kDelivered, kGivenUp };

// One message to one target.
struct DeliveryRecord {
  int64_t number = 0;  // grows with each delivery; the store gives it
  std::string id;      // for receivers; no two have the same
  std::string user;
  std::string target;  // empty for an address that a spec names
  std::string webhook;
  std::string mail;
  std::string event;  // "end"; empty for a test
  JobId job;
  std::string message;  // JSON; empty once it is no longer needed
  DeliveryState state = DeliveryState::kPending;
  std::string result;  // what the last try gave
  int32_t tries = 0;
  int64_t create_us = 0;
  int64_t last_try_us = 0;
  int64_t next_try_us = 0;

  const std::string& address() const { return webhook.empty() ? mail : webhook; }
  friend bool operator==(const DeliveryRecord&, const DeliveryRecord&) = default;
};

inline constexpr size_t kTargetsOfUserMax = 20;
// The messages that wait for one target. Further ones are given up.
inline constexpr int64_t kWaitingOfTargetMax = 100;
// The deliveries of one user that are remembered once they are done.
inline constexpr int64_t kDoneOfUserMax = 200;

// The store. It is thread-safe, and its calls block on the disk. What a call has changed is on disk
// when it returns.
class NotifyStore {
 public:
  // Opens a file, and makes it with mode 0600 if it is not there.
  static absl::StatusOr<std::unique_ptr<NotifyStore>> Open(const std::string& path);

  // Returns ALREADY_EXISTS, or RESOURCE_EXHAUSTED (TOO_MANY_TARGETS).
  absl::Status AddTarget(const TargetRecord& target);
  // Deletes a target, and what waits for it. Returns NOT_FOUND (TARGET_NOT_FOUND).
  absl::Status DeleteTarget(const std::string& user, const std::string& name);
  absl::StatusOr<TargetRecord> FindTarget(const std::string& user, const std::string& name);
  // Returns the user's targets in order of name.
  absl::StatusOr<std::vector<TargetRecord>> ListTargets(const std::string& user);

  // Adds deliveries, and notes that all events up to `last_event` are worked off, in one
  // transaction. A delivery whose id is there already is left out, and one whose target has too
  // many waiting is given up at once.
  absl::Status AddDeliveries(const std::vector<DeliveryRecord>& deliveries, int64_t last_event);
  // Returns the last event that is worked off; unset for a new file.
  absl::StatusOr<std::optional<int64_t>> LastEvent();

  // Returns the deliveries that are due, the oldest of each target.
  absl::StatusOr<std::vector<DeliveryRecord>> Due(int64_t now_us);
  // Returns the time at which the next one is due; unset if none waits.
  absl::StatusOr<std::optional<int64_t>> NextDue(int64_t after_us);
  // Writes what has become of a delivery: state, result, tries and times. It does nothing if the
  // delivery was deleted meanwhile.
  absl::Status Update(const DeliveryRecord& delivery);
  // Returns deliveries of a user, the newest first; of one target, unless that is empty.
  absl::StatusOr<std::vector<DeliveryRecord>> ListDeliveries(const std::string& user,
                                                             const std::string& target,
                                                             int64_t limit);

 private:
  explicit NotifyStore(std::unique_ptr<Database> db) : db_(std::move(db)) {}
  absl::Status Add(DeliveryRecord delivery) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<int64_t> CountWaiting(const DeliveryRecord& delivery)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  std::unique_ptr<Database> db_ ABSL_PT_GUARDED_BY(mutex_);
};

}  // namespace trainyard::store

namespace trainyard::error {

// TARGET_NOT_FOUND: list the targets with `trainyard notify ls`.
absl::Status TargetNotFound(absl::string_view name);

}  // namespace trainyard::error
