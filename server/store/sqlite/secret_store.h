// Keeps the secrets of users in a file of their own, encrypted. The key lies in a file beside it,
// so a copy of the database alone, such as a backup, tells no value; whoever reads both files reads
// all.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "server/store/sqlite/database.h"

namespace trainyard::store {

// Describes a secret without its value.
struct SecretInfo {
  std::string name;
  int64_t size = 0;  // of its value, in bytes
  absl::Time created;
  absl::Time updated;

  friend bool operator==(const SecretInfo&, const SecretInfo&) = default;
};

// A token has some hundred bytes, and a key file a few KiB.
inline constexpr size_t kSecretBytesMax = size_t{64} << 10;
// The secrets of one user. They bound the file and the memory.
inline constexpr size_t kSecretsOfUserMax = 100;

// The store. It is thread-safe. What a call has changed is on disk when it returns. Has and List
// look into memory alone; the others block on the disk.
class SecretStore {
 public:
  // Opens <state_dir>/secrets.db and secrets.key, and makes them with mode 0600 if neither is
  // there. Returns DATA_LOSS (CORRUPT_FILE) if one is damaged, or if there are secrets without the
  // key.
  static absl::StatusOr<std::unique_ptr<SecretStore>> Open(const std::string& state_dir);

  // Stores a secret, or replaces it. Returns RESOURCE_EXHAUSTED (TOO_MANY_SECRETS).
  absl::StatusOr<SecretInfo> Put(const std::string& user, const std::string& name,
                                 absl::string_view value, absl::Time now);
  // Deletes a secret, and overwrites where it lay. Returns NOT_FOUND (SECRET_NOT_FOUND).
  absl::Status Delete(const std::string& user, const std::string& name);
  // Returns a value, or NOT_FOUND (SECRET_NOT_FOUND).
  absl::StatusOr<std::string> Read(const std::string& user, const std::string& name);

  bool Has(const std::string& user, const std::string& name) const;
  // Returns the user's secrets in order of name.
  std::vector<SecretInfo> List(const std::string& user) const;

 private:
  SecretStore(std::unique_ptr<Database> db, std::string key)
      : db_(std::move(db)), key_(std::move(key)) {}
  absl::Status Load();
  // Writes everything back into the file, so that the log keeps no value that is gone.
  absl::Status Settle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(file_mutex_);

  Mutex file_mutex_;
  std::unique_ptr<Database> db_ ABSL_PT_GUARDED_BY(file_mutex_);
  const std::string key_;
  mutable Mutex mutex_;  // taken after file_mutex_
  std::map<std::pair<std::string, std::string>, SecretInfo> known_
      ABSL_GUARDED_BY(mutex_);  // by user and name
};

}  // namespace trainyard::store

namespace trainyard::error {

// SECRET_NOT_FOUND: list them with `trainyard secrets ls`, and set it with `trainyard secrets set`.
inline constexpr char kSecretNotFound[] = "SECRET_NOT_FOUND";
absl::Status SecretNotFound(absl::string_view user, absl::string_view name);

}  // namespace trainyard::error
