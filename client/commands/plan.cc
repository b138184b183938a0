// plan shows the memory plan of a spec, for the devices of the pool or for this machine.
#include <optional>
#include <ostream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands/load_spec.h"
#include "client/commands/memory_need.h"
#include "client/commands/trainer_plan.h"
#include "client/commands/verbs.h"
#include "client/spec_loader/spec_file.h"
#include "common/base/status_macros.h"
#include "common/spec/resolve.h"

namespace trainyard::commands {
namespace {

struct PlanOptions {
  std::string file;
  SpecFlags spec;
  std::string backend = "cpu";
  int threads = 1;
  std::vector<std::string> without;
  bool layers = false;
  bool dot = false;
  bool json = false;
  bool local = false;
};

// Finds the devices for which to plan: those of the pool if a server answers.
absl::StatusOr<std::optional<PoolDevices>> DevicesToPlanFor(const Context& context,
                                                            const v1::JobSpec& resolved) {
  const auto link = Connect(context);
  if (!link.ok()) return std::nullopt;
  TY_ASSIGN_OR_RETURN(const auto devices, LargestDevices(**link, resolved.devices()));
  if (!devices.has_value()) {
    context.Say("no device of the pool suits the spec; planned for this machine");
    return devices;
  }
  context.Say(absl::StrCat("planned for the pool, which has ", devices->Text(),
                           devices->type == "cpu" ? "" : "; a GPU itself needs less in bf16",
                           "; --local plans for this machine"));
  return devices;
}

Result Plan(const Context& context, const PlanOptions& options) {
  TY_ASSIGN_OR_RETURN(spec_loader::SpecFile file, ReadSpec(context, options.file));
  TY_RETURN_IF_ERROR(ApplyChanges(options.spec, file).status());
  if (!file.mistakes.empty()) return TellMistakes(context, file, "nothing was planned");
  TY_ASSIGN_OR_RETURN(const v1::JobSpec resolved, spec::ResolveSpec(file.spec));
  if (resolved.has_program()) {
    return absl::InvalidArgumentError(absl::StrCat(
        file.name,
        " runs a program of its own, whose steps only the program knows; plan predicts "
        "the training of models"));
  }
  const bool is_json = options.json || context.options.format == Format::kJson;
  std::vector<std::string> flags = {"--format", options.dot      ? "dot"
                                                : is_json        ? "json"
                                                : options.layers ? "layers"
                                                                 : "table"};
  flags.insert(flags.end(),
               {"--backend", options.backend, "--threads", absl::StrCat(options.threads)});
  for (const std::string& pass : options.without) flags.insert(flags.end(), {"--without", pass});
  if (!options.local && !options.dot && !options.layers) {
    TY_ASSIGN_OR_RETURN(const auto devices, DevicesToPlanFor(context, resolved));
    if (devices.has_value()) {
      flags.insert(flags.end(), {"--memory", absl::StrCat(devices->memory_bytes)});
    }
  }
  TY_ASSIGN_OR_RETURN(const std::string answer, AskTrainerForPlan(context.surroundings.binary_dir,
                                                                  resolved, flags, kPlanTimeout));
  context.out << answer << std::flush;
  return link::kOk;
}

}  // namespace

void AddPlan(VerbTable& verbs) {
  verbs.Add<PlanOptions>(
      "plan", "Tell time and memory of a step before it runs",
      "jobs/resnet50-imagenet.yaml --batch 64\n"
      "  trainyard plan jobs/convnet-glyphs.yaml --dot | dot -Tsvg > step.svg",
      [](client::Flags& flags, PlanOptions& options) {
        flags
            .Word("FILE", options.file,
                  "Spec in YAML or JSON; - for standard input; or the name of a saved spec")
            .Required();
        flags.Repeated("--set", options.spec.set,
                       "Change of the spec, PATH=VALUE; may be repeated");
        flags.Value("--devices", options.spec.devices, "Number of devices (devices.count)")
            .Range(1, kDevicesMax);
        flags.Value("--batch", options.spec.batch, "Samples of a step (train.global_batch)")
            .Positive();
        flags.Value("--backend", options.backend, "cpu or reference");
        flags.Value("--threads", options.threads, "Threads of a device").Range(1, 4096);
        flags.Repeated("--without", options.without, "Pass to leave out; may be repeated");
        flags.Switch("--local", options.local,
                     "Plan for the memory of this machine, and not for the devices of the pool");
        flags.Switch("--layers", options.layers, "A row for each layer");
        const client::Flag dot =
            flags.Switch("--dot", options.dot, "The step's graph, for Graphviz");
        flags.Switch("--json", options.json, "Print all of it as JSON, as -o json does")
            .Excludes(dot);
      },
      Plan);
}

}  // namespace trainyard::commands
