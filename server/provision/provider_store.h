// Keeps the providers and their pilots in a file of its own, since their changes delay no job.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/provision/cluster.h"
#include "server/provision/core/state.h"
#include "server/store/sqlite/database.h"

namespace trainyard::provision {

// All that is kept.
struct Kept {
  State state;
  std::map<std::string, ClusterOptions> clusters;  // by provider

  friend bool operator==(const Kept&, const Kept&) = default;
};

// The store. One thread uses it at a time.
class ProviderStore {
 public:
  // Opens the file, and makes it if it is not there.
  static absl::StatusOr<std::unique_ptr<ProviderStore>> Open(const std::string& path);

  // Returns what is kept. The id of the server is empty if nothing was ever kept. Returns DATA_LOSS
  // (CORRUPT_FILE) for a record that cannot be read: nothing may be asked for then.
  absl::StatusOr<Kept> Load();
  // Returns the id of the server alone, which is readable although other records are not.
  absl::StatusOr<std::string> LoadServerId();
  // Writes down what differs, in one transaction. Times alone are no difference.
  absl::Status Save(const Kept& before, const Kept& after);

 private:
  explicit ProviderStore(std::unique_ptr<store::Database> db) : db_(std::move(db)) {}

  std::unique_ptr<store::Database> db_;
};

}  // namespace trainyard::provision
