// Reads JSON that a user has sent.
#pragma once

#include <optional>

#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace trainyard::spec {

// Code that reads, copies or prints a value calls itself for each level. No spec has as many.
inline constexpr int kJsonDepthMax = 64;

// Returns the value, or nothing if the text is not valid JSON or has more levels than that.
std::optional<nlohmann::json> ParseJson(absl::string_view text);

}  // namespace trainyard::spec
