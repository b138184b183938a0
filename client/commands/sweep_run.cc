// sweep run begins a sweep, and follows it to its end.
#include <algorithm>
#include <optional>
#include <ostream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/commands/call_persistently.h"
#include "client/commands/code_sender.h"
#include "client/commands/load_spec.h"
#include "client/commands/memory_need.h"
#include "client/commands/program_command.h"
#include "client/commands/submit_options.h"
#include "client/commands/sweep_follow.h"
#include "client/commands/sweep_table.h"
#include "client/commands/verbs.h"
#include "client/output/text.h"
#include "client/spec_loader/spec_file.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"

namespace trainyard::commands {
namespace {

constexpr absl::string_view kNothingBegun = "nothing was begun";

// The table after the end of a sweep that was followed shows this many trials.
constexpr size_t kTrialsAtEnd = 10;

struct SweepRunOptions {
  std::string source;
  std::vector<std::string> command;     // what stands after --
  std::vector<std::string> variables;   // of --env
  std::vector<std::string> parameters;  // each "PATH=DISTRIBUTION"
  std::string maximize;
  std::string minimize;
  std::string search;
  std::optional<int> trials;
  std::optional<int> concurrent;
  std::optional<int> patience;
  std::string seed;
  std::string budget;
  std::string target;
  SubmitFlags flags;
  bool detach = false;
};

// Returns the changes of the spec with those that the shorthands stand for. They come after the
// user's own.
absl::StatusOr<SpecFlags> WithShorthands(const SweepRunOptions& options) {
  SpecFlags flags = options.flags.spec;
  const auto set = [&flags](absl::string_view path, absl::string_view value) {
    flags.set.push_back(absl::StrCat("sweep.", path, "=", value));
  };
  for (const std::string& text : options.parameters) {
    const size_t equals = text.find('=');
    const std::string path(absl::StripAsciiWhitespace(text.substr(0, equals)));
    if (equals == std::string::npos || path.empty() ||
        absl::StripAsciiWhitespace(text.substr(equals + 1)).empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--sweep '", text,
                       "' has no PATH=DISTRIBUTION; write one such as --sweep "
                       "'optimizer.sgd.lr=log(1e-4, 1)' or --sweep 'train.global_batch=[32, 64]'"));
    }
    set(absl::StrCat("parameters.", path), text.substr(equals + 1));
  }
  for (const auto& [path, text] :
       {std::pair<const char*, const std::string&>("maximize", options.maximize),
        {"minimize", options.minimize},
        {"search", options.search},
        {"budget", options.budget}}) {
    if (!text.empty()) set(path, JsonQuote(text));
  }
  for (const auto& [path, text] : {std::pair<const char*, const std::string&>("seed", options.seed),
                                   {"target", options.target}}) {
    if (!text.empty()) set(path, text);
  }
  for (const auto& [path, number] :
       {std::pair<const char*, const std::optional<int>&>("trials", options.trials),
        {"concurrent", options.concurrent},
        {"patience", options.patience}}) {
    if (number.has_value()) set(path, absl::StrCat(*number));
  }
  return flags;
}

absl::StatusOr<spec_loader::SpecFile> ReadSource(const Context& context,
                                                 const SweepRunOptions& options) {
  if (options.command.empty() == options.source.empty()) {
    return absl::InvalidArgumentError(
        "give one spec, as in `trainyard sweep run job.yaml`, or a command after '--', as in "
        "`trainyard sweep run --sweep 'program.params.lr=log(1e-4, 1)' --minimize loss -- python3 "
        "train.py --lr {lr}`");
  }
  if (options.command.empty()) {
    if (!options.variables.empty()) {
      return absl::InvalidArgumentError(
          "--env belongs to a command after '--'; for a spec, write --set program.env.NAME=VALUE");
    }
    return ReadSpec(context, options.source);
  }
  TY_ASSIGN_OR_RETURN(const auto text, SpecOfCommand(context, options.command, options.variables,
                                                     options.flags.spec.code));
  return spec_loader::ParseSpecText(text);
}

// Returns true if all trials need the same memory: only rates, seeds and what programs are told
// differ.
bool HasOneNeed(const v1::SweepSpec& sweep) {
  return std::all_of(sweep.parameters().begin(), sweep.parameters().end(), [](const auto& one) {
    return absl::StartsWith(one.first, "optimizer.") || absl::StartsWith(one.first, "schedule.") ||
           one.first == "train.seed";
  });
}

absl::StatusOr<v1::CreateSweepRequest> RequestOf(const Context& context, link::ServerLink& link,
                                                 const SweepRunOptions& options,
                                                 const spec_loader::SpecFile& file) {
  const bool is_dry = options.flags.dry_run;
  v1::CreateSweepRequest request;
  *request.mutable_spec() = file.spec;
  request.set_validate_only(is_dry);
  request.set_request_id(options.flags.request_id.empty() ? MakeUuid(context.rng)
                                                          : options.flags.request_id);
  TY_ASSIGN_OR_RETURN(*request.mutable_options(), SubmitOptionsOf(context, link, options.flags));
  request.mutable_options()->set_saved_spec(file.saved_spec);
  if (HasOneNeed(file.spec.sweep())) {
    const auto need = MemoryPlanner(context.surroundings.binary_dir).NeedOf(file.spec);
    if (need.has_value()) *request.mutable_options()->mutable_memory_need() = *need;
  }
  TY_RETURN_IF_ERROR(CodeSender(context, is_dry ? nullptr : &link)
                         .Send(file, *request.mutable_spec(), *request.mutable_options()));
  return request;
}

void TellSweepWarnings(const Context& context, const v1::Sweep& sweep) {
  for (const std::string& warning : sweep.warnings()) {
    context.err << context.terminal.Style("1;33", "warning:") << " " << warning << "\n";
  }
}

// Prints what would begin.
Result TellPlanned(const Context& context, const v1::Sweep& sweep) {
  TellSweepWarnings(context, sweep);
  if (!PrintOne(context, sweep, sweep.title())) context.out << TrialValues(sweep) << std::flush;
  const bool has_more = sweep.trials_total() > sweep.trials_size();
  context.Say(absl::StrCat(
      has_more ? absl::StrCat("these are the first ", sweep.trials_size(), " of ",
                              FormatCount(sweep.trials_total()), " trials")
               : absl::StrCat("these are all ", sweep.trials_size(), " trials"),
      sweep.concurrent() > 0 ? absl::StrCat(", ", sweep.concurrent(), " at a time") : "", "; ",
      kNothingBegun));
  return link::kOk;
}

// Prints on stderr how the sweep has ended, and what the user can do next.
void TellSweepEnd(const Context& context, const v1::Sweep& sweep) {
  if (context.options.quiet) return;
  const std::string id = output::ShortName(sweep.name());
  context.err << "\n" << RungLadder(sweep);
  if (!sweep.trials().empty()) {
    context.err << TrialTable(sweep, context.terminal, kTrialsAtEnd) << "\n";
  }
  context.err << SweepLine(sweep, context.terminal);
  if (!sweep.reason().empty()) context.err << "  " << sweep.reason() << "\n";
  context.err << "next:\n";
  if (BestTrial(sweep) != nullptr) {
    context.err << "  trainyard sweep best " << id << "              the values of the best trial\n"
                << "  trainyard sweep show " << id << " --svg FILE   a picture of all trials\n";
  } else {
    context.err << "  trainyard sweep show " << id << " --log        what was decided, and why\n";
  }
  if (sweep.state() == v1::SWEEP_STATE_STOPPED) {
    context.err << "  trainyard sweep resume " << id << "            goes on with it\n";
  }
  context.err << std::flush;
}

Result RunSweep(const Context& context, const SweepRunOptions& options) {
  TY_ASSIGN_OR_RETURN(spec_loader::SpecFile file, ReadSource(context, options));
  TY_ASSIGN_OR_RETURN(const SpecFlags flags, WithShorthands(options));
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> changed, ApplyChanges(flags, file));
  if (!file.mistakes.empty()) return TellMistakes(context, file, kNothingBegun);
  if (!file.spec.has_sweep()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.name,
                     " has no `sweep`; write one, or say what is searched with flags: --sweep "
                     "'optimizer.sgd.lr=log(1e-4, 1)' --maximize test.accuracy --trials 20"));
  }
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const v1::CreateSweepRequest request,
                      RequestOf(context, *link, options, file));
  const auto sweep =
      CallPersistently(context, *link, &v1::SweepService::Stub::CreateSweep, request);
  if (const auto violations = GetFieldViolations(sweep.status()); !violations.empty()) {
    spec_loader::AddViolations(file, violations, changed);
    return TellMistakes(context, file, kNothingBegun);
  }
  TY_RETURN_IF_ERROR(sweep.status());
  if (options.flags.dry_run) return TellPlanned(context, *sweep);
  TellSweepWarnings(context, *sweep);
  if (!PrintOne(context, *sweep, sweep->name())) context.out << sweep->name() << "\n" << std::flush;
  const std::string id = output::ShortName(sweep->name());
  if (options.detach) {
    context.Say(
        absl::StrCat("began '", sweep->title(), "'; trainyard sweep show ", id, " -f follows it"));
    return link::kOk;
  }
  TY_ASSIGN_OR_RETURN(const std::optional<v1::Sweep> ended,
                      FollowSweep(context, *link, sweep->name(), /*prints_decisions=*/false));
  if (!ended.has_value()) return link::kInterrupted;
  TellSweepEnd(context, *ended);
  return SweepExitCode(*ended);
}

void DeclareSearch(client::Flags& flags, SweepRunOptions& options) {
  flags
      .Repeated("--sweep", options.parameters,
                "Field that is searched, with its values: optimizer.sgd.lr=log(1e-4, 1), or a "
                "list; may be repeated (sweep.parameters)")
      .ShownAs("PATH=DISTRIBUTION");
  const client::Flag maximize =
      flags.Value("--maximize", options.maximize, "Metric whose larger values are better")
          .ShownAs("METRIC");
  flags.Value("--minimize", options.minimize, "Metric whose smaller values are better")
      .ShownAs("METRIC")
      .Excludes(maximize);
  flags
      .Value("--search", options.search,
             "How trials are chosen and which go on: grid, random, asha or pbt (random)")
      .OneOf({"grid", "random", "asha", "pbt"});
  flags
      .Value("--trials", options.trials,
             "Number of trials; a grid has all its points without it (sweep.trials)")
      .Range(0, 10'000);
  flags
      .Value("--concurrent", options.concurrent,
             "The most trials at a time; as many as the pool has room for by default")
      .Range(0, 10'000);
  flags.Value("--seed", options.seed, "The values of the trials depend on it (0)")
      .ShownAs("NUMBER");
  flags.Value("--budget", options.budget,
              "End after this much device time of all trials together, such as 10h");
  flags.Value("--target", options.target, "End once a trial is as good as this").ShownAs("NUMBER");
  flags
      .Value("--patience", options.patience,
             "End once this many trials in a row were no better than the best before them")
      .Range(0, 10'000);
}

}  // namespace

void AddSweepRun(VerbTable& verbs) {
  verbs.Group("sweep", "Sweeps: many jobs that search for good values of a spec");
  verbs.Add<SweepRunOptions>(
      "sweep run", "Begin a sweep and follow it to its end",
      "jobs/sweep-fashion-mnist.yaml\n"
      "  trainyard sweep run job.yaml --sweep 'optimizer.sgd.lr=log(1e-4, 1)' \\\n"
      "      --maximize test.accuracy --search asha --trials 32\n"
      "  trainyard sweep run --sweep 'program.params.lr=log(1e-4, 1)' --minimize loss \\\n"
      "      -- python3 train.py --lr {lr}",
      [](client::Flags& flags, SweepRunOptions& options) {
        flags.Word("FILE", options.source,
                   "Spec in YAML or JSON; - for standard input; or the name of a saved spec");
        DeclareSearch(flags, options);
        DeclareSpecFlags(flags, options.flags.spec);
        DeclareStartFlags(flags, options.flags);
        flags.Value("--request-id", options.flags.request_id,
                    "The same request sent again gives the same sweep (chosen at random "
                    "otherwise)");
        flags.Switch("--dry-run", options.flags.dry_run,
                     "Check it and show the values of the first trials, but begin nothing");
        flags.Switch("--detach", options.detach, "Do not follow it");
        flags
            .Repeated("--env", options.variables,
                      "Variable of the command's environment, NAME=VALUE, or NAME for the value "
                      "that it has here; may be repeated")
            .ShownAs("NAME[=VALUE]");
        flags.Rest("COMMAND...", options.command,
                   "A program of your own with its words, in place of FILE");
      },
      RunSweep);
}

}  // namespace trainyard::commands
