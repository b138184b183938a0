// plan shows the memory plan of a spec. The trainer makes it, because only the trainer contains the
// engine.
#include "client/commands/plan.h"

#include <nlohmann/json.hpp>
#include <ostream>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "client/commands/load_spec.h"
#include "client/commands/verbs.h"
#include "client/daemons/child.h"
#include "client/output/proto_text.h"
#include "client/spec_loader/spec_file.h"
#include "common/base/program_paths.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/spec/resolve.h"

namespace trainyard::commands {
namespace {

using nlohmann::ordered_json;

struct PlanOptions {
  std::string file;
  SpecFlags spec;
  std::string backend = "cpu";
  int threads = 1;
  std::vector<std::string> without;
  bool layers = false;
  bool dot = false;
  bool json = false;
};

// The largest networks take longest, most of all if the trainer searches for a plan that fits.
constexpr absl::Duration kPlanTimeout = absl::Minutes(1);
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

// Runs the trainer that lies beside this program. Its messages about a wrong spec or flag are
// passed on unchanged.
absl::StatusOr<std::string> AskTrainer(const std::string& binary_dir, const v1::JobSpec& spec,
                                       const std::vector<std::string>& flags) {
  TY_ASSIGN_OR_RETURN(const std::string trainer, FindProgram(binary_dir, "trainyard-trainer"));
  std::vector<std::string> args = {trainer, "--plan", "-"};
  args.insert(args.end(), flags.begin(), flags.end());
  TY_ASSIGN_OR_RETURN(const daemons::ChildResult result,
                      daemons::RunChild(args, output::WireJson(spec), kPlanTimeout));
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
  TY_ASSIGN_OR_RETURN(const std::string answer, AskTrainer(binary_dir, spec, {}));
  return PlanText(answer);
}

namespace {

Result Plan(const Context& context, const PlanOptions& options) {
  TY_ASSIGN_OR_RETURN(spec_loader::SpecFile file, ReadSpec(context, options.file));
  TY_RETURN_IF_ERROR(ApplyChanges(options.spec, file).status());
  if (!file.mistakes.empty()) return TellMistakes(context, file, "nothing was planned");
  TY_ASSIGN_OR_RETURN(const v1::JobSpec resolved, spec::ResolveSpec(file.spec));
  const bool is_json = options.json || context.options.format == Format::kJson;
  std::vector<std::string> flags = {"--format", options.dot      ? "dot"
                                                : is_json        ? "json"
                                                : options.layers ? "layers"
                                                                 : "table"};
  flags.insert(flags.end(),
               {"--backend", options.backend, "--threads", absl::StrCat(options.threads)});
  for (const std::string& pass : options.without) flags.insert(flags.end(), {"--without", pass});
  TY_ASSIGN_OR_RETURN(const std::string answer,
                      AskTrainer(context.surroundings.binary_dir, resolved, flags));
  context.out << answer << std::flush;
  return link::kOk;
}

}  // namespace

void AddPlan(VerbTable& verbs) {
  verbs.Add<PlanOptions>(
      "plan", "Tell time and memory of a step before it runs; needs no server",
      "jobs/resnet50-imagenet.yaml --batch 64\n"
      "  trainyard plan jobs/convnet-glyphs.yaml --dot | dot -Tsvg > step.svg",
      [](client::Flags& flags, PlanOptions& options) {
        flags.Word("FILE", options.file, "Spec in YAML or JSON; - for standard input").Required();
        flags.Repeated("--set", options.spec.set,
                       "Change of the spec, PATH=VALUE; may be repeated");
        flags.Value("--devices", options.spec.devices, "Number of devices (devices.count)")
            .Range(1, kDevicesMax);
        flags.Value("--batch", options.spec.batch, "Samples of a step (train.global_batch)")
            .Positive();
        flags.Value("--backend", options.backend, "cpu or reference");
        flags.Value("--threads", options.threads, "Threads of a device").Range(1, 4096);
        flags.Repeated("--without", options.without, "Pass to leave out; may be repeated");
        flags.Switch("--layers", options.layers, "A row for each layer");
        const client::Flag dot =
            flags.Switch("--dot", options.dot, "The step's graph, for Graphviz");
        flags.Switch("--json", options.json, "Print all of it as JSON, as -o json does")
            .Excludes(dot);
      },
      Plan);
}

}  // namespace trainyard::commands
