// Looks at each character.
#include "common/base/device_type.h"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace trainyard {
namespace {

constexpr size_t kBytesMax = 63;

}  // namespace

bool IsDeviceType(absl::string_view type) {
  return !type.empty() && type.size() <= kBytesMax &&
         std::all_of(type.begin(), type.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' ||
                  c == '.';
         });
}

}  // namespace trainyard
