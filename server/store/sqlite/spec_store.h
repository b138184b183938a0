// Keeps the catalogue of saved specs in a file of its own. What lists show of a version is in
// memory; its specs are read from the file when they are asked for.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/ids.h"
#include "common/base/mutex.h"
#include "server/store/sqlite/database.h"
#include "trainyard/v1/catalogue.pb.h"

namespace trainyard::store {

// The versions of all names together. They bound the file and the memory.
inline constexpr int64_t kSavedSpecsMax = 100'000;

// The store. It is thread-safe. What a call has changed is on disk when it returns. Put, Read and
// Delete block on the disk; the others look into memory alone.
class SpecStore {
 public:
  // A version without its specs.
  using Summary = std::shared_ptr<const v1::SavedSpec>;

  // Opens the file, and makes it if it is not there.
  static absl::StatusOr<std::unique_ptr<SpecStore>> Open(const std::string& path);

  // Saves `saved` as the next version of `name`, and returns it with its full name. Returns
  // RESOURCE_EXHAUSTED (CATALOGUE_FULL).
  absl::StatusOr<v1::SavedSpec> Put(const std::string& name, v1::SavedSpec saved);
  // Saves several, of different names, or none of them.
  absl::StatusOr<std::vector<v1::SavedSpec>> PutAll(
      std::vector<std::pair<std::string, v1::SavedSpec>> all);
  // Returns a version with its specs, or NOT_FOUND (SPEC_NOT_FOUND).
  absl::StatusOr<v1::SavedSpec> Read(const SpecId& id);
  // Deletes a version, or all of the name for version 0. Returns their number, or NOT_FOUND
  // (SPEC_NOT_FOUND).
  absl::StatusOr<int32_t> Delete(const SpecId& id);

  // Returns a version, or null if there is none.
  Summary Find(const SpecId& id) const;
  // Returns all versions of a name, the newest first.
  std::vector<Summary> VersionsOf(const std::string& name) const;
  // Calls `visit` with the newest version of each name after `name`, in order, until it returns
  // false. It is called under a lock.
  void ForEachNewest(const std::string& after, absl::FunctionRef<bool(const Summary&)> visit) const;
  // Returns true if the name was ever used, even if all its versions were deleted.
  bool WasUsed(const std::string& name) const;
  // Returns true if a version that `accept` takes has this code, or this diff of it.
  bool IsCodeUsed(const std::string& digest,
                  absl::FunctionRef<bool(const v1::SavedSpec&)> accept) const;

 private:
  struct Name {
    int32_t last_version = 0;  // the greatest that was ever given out
    std::map<int32_t, Summary> versions;
  };

  explicit SpecStore(std::unique_ptr<Database> db) : db_(std::move(db)) {}
  absl::Status Load();
  // Returns the number of the next version of the name, or CATALOGUE_FULL.
  absl::StatusOr<int32_t> NextVersion(const std::string& name) const;
  // Returns the version that `id` means: the newest for 0. Returns NOT_FOUND (SPEC_NOT_FOUND).
  absl::StatusOr<Summary> Get(const SpecId& id) const;
  void Insert(const std::string& name, int32_t version, Summary summary)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Erase(const std::string& name, int32_t version) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex file_mutex_;
  std::unique_ptr<Database> db_ ABSL_PT_GUARDED_BY(file_mutex_);
  mutable Mutex mutex_;  // taken after file_mutex_
  std::map<std::string, Name> names_ ABSL_GUARDED_BY(mutex_);
  int64_t count_ ABSL_GUARDED_BY(mutex_) = 0;
  // By digest of a code archive or of a diff.
  std::map<std::string, std::set<SpecId>> code_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard::store

namespace trainyard::error {

// SPEC_NOT_FOUND: `trainyard specs ls` lists the names, and `trainyard specs history NAME` the
// versions of one.
inline constexpr char kSpecNotFound[] = "SPEC_NOT_FOUND";
absl::Status SpecNotFound(const SpecId& id, const std::vector<std::string>& names);

}  // namespace trainyard::error
