// Reads and writes the beginning of a job as JSON.
#include "server/sweeps/begin.h"

#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "nlohmann/json.hpp"

namespace trainyard::sweeps {
namespace {

using Json = nlohmann::json;

absl::Status Unreadable() {
  return absl::DataLossError("the beginning of a trial cannot be read");
}

}  // namespace

std::string ToText(const Begin& begin) {
  Json text = {{"values", Json::object()}};
  for (const auto& [path, value] : begin.values) {
    text["values"][path] = value;
  }
  if (begin.from.has_value()) text["from"] = CheckpointName(begin.from->job, begin.from->step);
  return text.dump();
}

absl::StatusOr<Begin> BeginFromText(absl::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("values") || !json["values"].is_object()) {
    return Unreadable();
  }
  Begin begin;
  for (const auto& [path, value] : json["values"].items()) {
    if (!value.is_string()) return Unreadable();
    begin.values[path] = value.get<std::string>();
  }
  if (json.contains("from")) {
    if (!json["from"].is_string()) return Unreadable();
    TY_ASSIGN_OR_RETURN(const CheckpointId from,
                        ParseCheckpointName(json["from"].get<std::string>()));
    begin.from = core::CheckpointRef{from.job, from.step};
  }
  return begin;
}

}  // namespace trainyard::sweeps
