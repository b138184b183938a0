// Specs that differ only in their names resolve alike, so they are kept under their bytes without
// the name.
#include "server/rpc/resolve_cache.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "common/spec/resolve.h"
#include "server/rpc/limits.h"

namespace trainyard::rpc {
namespace {

// The specs of one generation. There are two generations, and a spec has a few hundred bytes.
constexpr size_t kSpecsMax = 512;
// Larger specs are rare, and costly to keep.
constexpr size_t kBytesMax = size_t{16} << 10;

// Returns true if the rules accept the name, whatever else the spec says.
bool IsGoodName(absl::string_view name) {
  const auto is_alnum = [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)); };
  return !name.empty() && name.size() <= JobNameBytesMax() && is_alnum(name.front()) &&
         std::all_of(name.begin(), name.end(),
                     [&](char c) { return is_alnum(c) || c == '-' || c == '_' || c == '.'; });
}

}  // namespace

std::shared_ptr<const v1::JobSpec> ResolveCache::Find(absl::string_view key) {
  const MutexLock lock(&mutex_);
  if (const auto young = young_.find(key); young != young_.end()) return young->second;
  const auto old = old_.find(key);
  return old == old_.end() ? nullptr : old->second;
}

void ResolveCache::Keep(absl::string_view key, std::shared_ptr<const v1::JobSpec> resolved) {
  if (key.size() > kBytesMax) return;
  const MutexLock lock(&mutex_);
  if (young_.size() >= kSpecsMax) {
    old_ = std::move(young_);
    young_.clear();
  }
  young_[std::string(key)] = std::move(resolved);
}

std::shared_ptr<const Resolved> ResolveCache::Resolve(const v1::JobSpec& written,
                                                      std::vector<FieldViolation>& violations) {
  auto result = std::make_shared<Resolved>();
  result->written_bytes = written.SerializeAsString();
  // The name is the first field. It consists of its tag, its length in one byte, and its text.
  const bool is_known = IsGoodName(written.name());
  const absl::string_view key =
      absl::string_view(result->written_bytes).substr(is_known ? 2 + written.name().size() : 0);
  const auto known = is_known ? Find(key) : nullptr;
  if (known != nullptr) {
    result->spec = *known;
    result->spec.set_name(written.name());
  } else {
    violations = spec::ResolveInto(written, result->spec);
    if (!violations.empty()) return nullptr;
    if (is_known) Keep(key, std::make_shared<const v1::JobSpec>(result->spec));
  }
  result->resolved_bytes = result->spec.SerializeAsString();
  return result;
}

}  // namespace trainyard::rpc
