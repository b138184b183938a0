// Keeps specs that were resolved a moment ago. A client that submits the same spec a thousand
// times, each time under another name, pays for its rules and defaults only once.
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

// A spec without violations. It is immutable.
struct Resolved {
  v1::JobSpec spec;
  std::string written_bytes;   // what the user wrote, serialized
  std::string resolved_bytes;  // `spec`, serialized
};

// The cache. It is thread-safe.
class ResolveCache {
 public:
  // Resolves a spec. Returns null if there are violations, which are then in `violations`.
  std::shared_ptr<const Resolved> Resolve(const v1::JobSpec& written,
                                          std::vector<FieldViolation>& violations);

 private:
  // The key is what was written, serialized, without the name.
  using Specs = absl::flat_hash_map<std::string, std::shared_ptr<const v1::JobSpec>>;

  std::shared_ptr<const v1::JobSpec> Find(absl::string_view key);
  void Keep(absl::string_view key, std::shared_ptr<const v1::JobSpec> resolved);

  Mutex mutex_;
  // There are two generations. When the young one is full it becomes the old one, and the specs of
  // the former old one that were not asked for again are dropped.
  Specs young_ ABSL_GUARDED_BY(mutex_);
  Specs old_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard::rpc
