// Writes and reads the text of choices.
#include "worker/engine/backend/cuda/tuning/choices.h"

#include <nlohmann/json.hpp>

namespace trainyard::engine::cuda {

std::string EncodeChoices(const Choices& choices) {
  const nlohmann::json json = {{"plans", choices.plans}, {"products", choices.products}};
  // cuDNN makes the text of a plan, and bytes that are not UTF-8 must not end the process.
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

absl::StatusOr<Choices> DecodeChoices(absl::string_view text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("plans") || !json["plans"].is_array() ||
      !json.contains("products") || !json["products"].is_object()) {
    return absl::InvalidArgumentError("these are no choices of another rank");
  }
  Choices choices;
  for (const nlohmann::json& plan : json["plans"]) {
    if (plan.is_string()) choices.plans.push_back(plan.get<std::string>());
  }
  for (const auto& [key, place] : json["products"].items()) {
    if (place.is_number_integer()) choices.products[key] = place.get<int>();
  }
  return choices;
}

}  // namespace trainyard::engine::cuda
