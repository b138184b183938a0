// Specs that differ only in their names resolve alike, so they are kept under their bytes without
// the name.
#include "server/rpc/resolve_cache.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"
#include "common/spec/resolve.h"
#include "server/rpc/limits.h"

namespace trainyard::rpc {
namespace {

// Returns true if the rules accept the name, whatever else the spec says.
bool IsGoodName(absl::string_view name) {
  const auto is_alnum = [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)); };
  return !name.empty() && name.size() <= JobNameBytesMax() && is_alnum(name.front()) &&
         std::all_of(name.begin(), name.end(),
                     [&](char c) { return is_alnum(c) || c == '-' || c == '_' || c == '.'; });
}

}  // namespace

std::shared_ptr<const Resolved> ResolveCache::Resolve(const v1::JobSpec& written,
                                                      std::vector<FieldViolation>& violations) {
  auto result = std::make_shared<Resolved>();
  result->written_bytes = written.SerializeAsString();
  // The name is the first field. It consists of its tag, its length in one byte, and its text.
  const bool is_known = IsGoodName(written.name());
  const absl::string_view key =
      absl::string_view(result->written_bytes).substr(is_known ? 2 + written.name().size() : 0);
  const auto known = is_known ? resolved_.Find(key) : std::nullopt;
  if (known.has_value()) {
    result->spec = **known;
    result->spec.set_name(written.name());
  } else {
    violations = spec::ResolveInto(written, result->spec);
    if (!violations.empty()) return nullptr;
    if (is_known) {
      resolved_.Put(std::string(key), std::make_shared<const v1::JobSpec>(result->spec),
                    key.size());
    }
  }
  result->resolved_bytes = result->spec.SerializeAsString();
  return result;
}

}  // namespace trainyard::rpc
