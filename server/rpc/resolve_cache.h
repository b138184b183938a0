// Specs that were resolved a moment ago: clients that submit the same spec a thousand times, each
// under a name of its own, pay for its rules and defaults once.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "common/base/errors.h"
#include "common/base/mutex.h"
#include "trainyard/v1/spec.pb.h"

namespace trainyard::rpc {

// A spec without violations. Immutable.
struct Resolved {
  v1::JobSpec spec;
  std::string written_bytes;   // what the user wrote, serialized
  std::string resolved_bytes;  // `spec`, serialized
};

// Thread-safe.
class ResolveCache {
 public:
  // Null where there are violations: `violations` has them then.
  std::shared_ptr<const Resolved> Resolve(const v1::JobSpec& written,
                                          std::vector<FieldViolation>& violations);

 private:
  // By what was written, serialized, without the name.
  using Specs = absl::flat_hash_map<std::string, std::shared_ptr<const v1::JobSpec>>;

  std::shared_ptr<const v1::JobSpec> Find(absl::string_view key);
  void Keep(absl::string_view key, std::shared_ptr<const v1::JobSpec> resolved);

  Mutex mutex_;
  // Two generations: when the young one is full it becomes the old one, and what is not asked for
  // again goes with it.
  Specs young_ ABSL_GUARDED_BY(mutex_);
  Specs old_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard::rpc
