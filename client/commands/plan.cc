#include "client/commands/plan.h"

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "client/daemons/child.h"
#include "client/output/proto_text.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"

namespace trainyard::commands {
namespace {

using nlohmann::ordered_json;

// "activation_bytes": 1234567 as "activation: 1.2 MiB".
ordered_json ForPeople(const ordered_json& value) {
  if (value.is_array()) {
    ordered_json list = ordered_json::array();
    for (const ordered_json& element : value) list.push_back(ForPeople(element));
    return list;
  }
  if (!value.is_object()) return value;
  ordered_json members = ordered_json::object();
  for (const auto& [key, member] : value.items()) {
    std::string name = key;
    const bool is_bytes = absl::EndsWith(name, "_bytes") && member.is_number_integer();
    if (is_bytes) name = std::string(absl::StripSuffix(name, "_bytes"));
    absl::StrReplaceAll({{"_", " "}}, &name);
    members[name] = is_bytes ? ordered_json(FormatBytes(member.get<int64_t>())) : ForPeople(member);
  }
  return members;
}

}  // namespace

std::string PlanText(const std::string& json) {
  const ordered_json plan = ordered_json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (plan.is_discarded()) return json;
  if (plan.is_object() && plan.contains("text") && plan["text"].is_string()) {
    return plan["text"].get<std::string>();
  }
  std::string text = output::JsonToYaml(ForPeople(plan).dump());
  return absl::StrReplaceAll(text, {{"\"", ""}});
}

absl::StatusOr<std::string> MemoryPlan(const std::string& binary_dir, const v1::JobSpec& spec) {
  const std::string trainer = JoinPath(binary_dir, "trainyard-trainer");
  if (!FileExists(trainer)) {
    return absl::NotFoundError(absl::StrCat("there is no '", trainer, "'"));
  }
  TY_ASSIGN_OR_RETURN(const daemons::ChildResult result,
                      daemons::RunChild({trainer, "--plan", "-"}, output::ProtoJson(spec, false),
                                        absl::Seconds(30)));
  if (result.exit_code != 0) {
    return absl::InternalError(
        absl::StrCat("'", trainer, " --plan' ended with ", result.exit_code, ": ", result.err));
  }
  return PlanText(result.out);
}

}  // namespace trainyard::commands
