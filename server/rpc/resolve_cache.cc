#include "server/rpc/resolve_cache.h"

#include <utility>

#include "common/spec/resolve.h"

namespace trainyard::rpc {
namespace {

// Of one generation; 2 x 512 specs of a few hundred bytes.
constexpr size_t kSpecsMax = 512;
// Larger specs are rare, and dear to keep.
constexpr size_t kBytesMax = size_t{16} << 10;

}  // namespace

std::shared_ptr<const Resolved> ResolveCache::Find(const std::string& key) {
  const MutexLock lock(&mutex_);
  if (const auto young = young_.find(key); young != young_.end()) return young->second;
  const auto old = old_.find(key);
  return old == old_.end() ? nullptr : old->second;
}

void ResolveCache::Keep(std::shared_ptr<const Resolved> resolved) {
  if (resolved->written_bytes.size() > kBytesMax) return;
  const MutexLock lock(&mutex_);
  if (young_.size() >= kSpecsMax) {
    old_ = std::move(young_);
    young_.clear();
  }
  const std::string& key = resolved->written_bytes;
  young_[key] = std::move(resolved);
}

std::shared_ptr<const Resolved> ResolveCache::Resolve(const v1::JobSpec& written,
                                                      std::vector<FieldViolation>& violations) {
  std::string bytes = written.SerializeAsString();
  if (auto known = Find(bytes)) return known;
  auto resolved = std::make_shared<Resolved>();
  violations = spec::ResolveInto(written, resolved->spec);
  if (!violations.empty()) return nullptr;
  resolved->written_bytes = std::move(bytes);
  resolved->resolved_bytes = resolved->spec.SerializeAsString();
  Keep(resolved);
  return resolved;
}

}  // namespace trainyard::rpc
