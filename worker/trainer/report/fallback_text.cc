// Formats fallbacks as lines and as JSON.
#include "worker/trainer/report/fallback_text.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "worker/trainer/report/quantity_text.h"

namespace trainyard::trainer {

std::string FallbackList(const std::vector<engine::Fallback>& fallbacks) {
  if (fallbacks.empty()) return "";
  const auto count = static_cast<int64_t>(fallbacks.size());
  std::string text =
      absl::StrCat("cuDNN refused ", Counted(count, "operation"), ", so slower kernels compute ",
                   count == 1 ? "it" : "them", ":\n");
  for (const engine::Fallback& fallback : fallbacks) {
    absl::StrAppend(&text, "  ", engine::FallbackText(fallback), "\n");
  }
  return text;
}

nlohmann::ordered_json FallbackJson(const std::vector<engine::Fallback>& fallbacks) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const engine::Fallback& fallback : fallbacks) {
    json.push_back({{"layer", fallback.layer}, {"op", fallback.op}, {"reason", fallback.reason}});
  }
  return json;
}

}  // namespace trainyard::trainer
