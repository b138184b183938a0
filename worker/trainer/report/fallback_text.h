// Lists the operations that kernels of our own compute because a library refused them.
#pragma once

#include <string>
#include <vector>

#include "nlohmann/json_fwd.hpp"
#include "worker/engine/backend/executable.h"

namespace trainyard::trainer {

// Returns lines for people, or nothing if there are none.
std::string FallbackList(const std::vector<engine::Fallback>& fallbacks);
// Returns an array with an object for each.
nlohmann::ordered_json FallbackJson(const std::vector<engine::Fallback>& fallbacks);

}  // namespace trainyard::trainer
