// Keeps specs that were resolved a moment ago. A client that submits the same spec a thousand
// times, each time under another name, pays for its rules and defaults only once.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/base/errors.h"
#include "common/base/recent_map.h"
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
  // The bytes of what was written; larger specs than a hundredth of it are rare, and costly to
  // keep.
  static constexpr size_t kBytesMax = size_t{1600} << 10;

  // The key is what was written, serialized, without the name.
  RecentMap<std::string, std::shared_ptr<const v1::JobSpec>> resolved_{kBytesMax};
};

}  // namespace trainyard::rpc
