// Starts the trainer that lies beside this program, because only the trainer contains the engine.
#include "client/commands/trainer_plan.h"

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "client/daemons/child.h"
#include "client/output/proto_text.h"
#include "common/base/program_paths.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"

namespace trainyard::commands {
namespace {

using nlohmann::ordered_json;

// The exit code with which the trainer reports a mistake of its caller.
constexpr int kTrainerUserError = 2;

// Turns "activation_bytes": 1234567 into "activation: 1.2 MiB".
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

absl::StatusOr<std::string> AskTrainerForPlan(const std::string& binary_dir,
                                              const v1::JobSpec& spec,
                                              const std::vector<std::string>& flags,
                                              absl::Duration timeout) {
  TY_ASSIGN_OR_RETURN(const std::string trainer, FindProgram(binary_dir, "trainyard-trainer"));
  std::vector<std::string> args = {trainer, "--plan", "-"};
  args.insert(args.end(), flags.begin(), flags.end());
  TY_ASSIGN_OR_RETURN(const daemons::ChildResult result,
                      daemons::RunChild(args, output::ProtoJson(spec, false), timeout));
  if (result.exit_code == kTrainerUserError) {
    return absl::InvalidArgumentError(
        absl::StripPrefix(absl::StripTrailingAsciiWhitespace(result.err), "trainyard-trainer: "));
  }
  if (result.exit_code != 0) {
    return absl::InternalError(
        absl::StrCat("'", trainer, " --plan' ended with ", result.exit_code, ": ", result.err));
  }
  return result.out;
}

absl::StatusOr<std::string> MemoryPlan(const std::string& binary_dir, const v1::JobSpec& spec,
                                       int64_t memory_bytes) {
  std::vector<std::string> flags;
  if (memory_bytes > 0) flags = {"--memory", absl::StrCat(memory_bytes)};
  TY_ASSIGN_OR_RETURN(const std::string answer,
                      AskTrainerForPlan(binary_dir, spec, flags, kPlanTimeout));
  return PlanText(answer);
}

}  // namespace trainyard::commands
