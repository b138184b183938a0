// The verbs about sweeps that have begun: sweep ls, show, best, stop, resume and rm.
#include <map>
#include <optional>
#include <ostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/commands/sweep_follow.h"
#include "client/commands/sweep_selector.h"
#include "client/commands/sweep_svg.h"
#include "client/commands/sweep_table.h"
#include "client/commands/verbs.h"
#include "client/output/proto_text.h"
#include "client/output/text.h"
#include "common/base/columns.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {
namespace {

struct ListSweepsOptions {
  std::string user;
  int limit = 20;
};

struct ShowSweepOptions {
  std::string sweep;
  bool follow = false;
  bool log = false;
  std::string svg_file;
};

struct BestOptions {
  std::string sweep;
  bool spec = false;
};

struct StopSweepOptions {
  std::string sweep;
  bool cancel = false;
};

struct ResumeSweepOptions {
  std::string sweep;
  bool failed = false;
};

struct RemoveSweepOptions {
  std::vector<std::string> sweeps;
  bool yes = false;
};

Result ListSweeps(const Context& context, const ListSweepsOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  bool has_more = false;
  TY_ASSIGN_OR_RETURN(std::vector<v1::Sweep> sweeps,
                      FetchSweeps(*link, options.user, options.limit, has_more));
  if (!PrintResources(context, sweeps)) {
    if (sweeps.empty()) {
      context.Say(options.user.empty() ? "no sweeps; `trainyard sweep run FILE` begins one"
                                       : "no sweeps of this user; `trainyard sweep ls` lists all");
      return link::kOk;
    }
    context.out << SweepTable(sweeps, context.terminal, context.clock.Now()) << std::flush;
  }
  if (has_more) context.Say("... and more; --limit N lists more");
  return link::kOk;
}

void PrintSweep(const Context& context, const v1::Sweep& sweep) {
  context.out << SweepSheet(sweep, context.terminal);
  const std::string ladder = RungLadder(sweep);
  if (!ladder.empty()) context.out << "\n" << ladder;
  if (!sweep.trials().empty()) {
    context.out << "\n" << TrialTable(sweep, context.terminal, /*rows_max=*/0);
  }
  context.out << std::flush;
}

Result WritePicture(const Context& context, const v1::Sweep& sweep, const std::string& path) {
  const std::string svg = SweepSvg(sweep);
  if (path == "-") {
    context.out << svg << std::flush;
    return link::kOk;
  }
  TY_RETURN_IF_ERROR(WriteFileAtomically(path, svg, 0644));
  context.Say(absl::StrCat("the picture of ", sweep.name(), " is in ", path));
  return link::kOk;
}

Result ShowSweep(const Context& context, const ShowSweepOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const std::string name, ResolveSweep(*link, options.sweep));
  v1::Sweep sweep;
  if (options.follow) {
    const bool prints_decisions = options.log && context.options.IsTable();
    TY_ASSIGN_OR_RETURN(std::optional<v1::Sweep> ended,
                        FollowSweep(context, *link, name, prints_decisions));
    if (!ended.has_value()) return link::kInterrupted;
    sweep = *std::move(ended);
  } else {
    TY_ASSIGN_OR_RETURN(
        sweep, FetchSweep(*link, name, options.log ? std::optional<int64_t>(0) : std::nullopt));
  }
  if (!options.svg_file.empty()) {
    TY_RETURN_IF_ERROR(WritePicture(context, sweep, options.svg_file).status());
  } else if (!PrintOne(context, sweep, sweep.name())) {
    if (!options.log) PrintSweep(context, sweep);
    // Those who follow the decisions have seen them.
    if (options.log && !options.follow) {
      for (const v1::SweepDecision& decision : sweep.decisions()) {
        context.out << DecisionLine(decision);
      }
      context.out << std::flush;
    }
  }
  return options.follow ? SweepExitCode(sweep) : link::kOk;
}

Result ShowBest(const Context& context, const BestOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const std::string name, ResolveSweep(*link, options.sweep));
  TY_ASSIGN_OR_RETURN(const v1::Sweep sweep, FetchSweep(*link, name));
  const std::string id = output::ShortName(name);
  const v1::SweepTrial* best = BestTrial(sweep);
  if (best == nullptr) {
    return absl::NotFoundError(absl::StrCat("no trial of ", name, " has told a value of ",
                                            ObjectiveOf(sweep.spec().sweep()),
                                            " yet; `trainyard sweep show ", id, "` says more"));
  }
  if (options.spec) {
    v1::GetJobRequest request;
    request.set_name(best->job());
    TY_ASSIGN_OR_RETURN(const v1::Job job, link->Call(&v1::JobService::Stub::GetJob, request));
    context.out << output::SpecYaml(job.has_spec() ? job.spec() : job.resolved_spec())
                << std::flush;
    return link::kOk;
  }
  if (PrintOne(context, *best, best->job())) return link::kOk;
  std::vector<std::vector<std::string>> rows = {
      {"best", absl::StrCat("trial ", best->index(), " of ", name)},
      {"job", best->job()},
      {ObjectiveOf(sweep.spec().sweep()),
       absl::StrCat(output::NumberText(best->value()), " at step ", best->step())}};
  const std::map<std::string, std::string> values(best->values().begin(), best->values().end());
  for (const auto& [path, value] : values) rows.push_back({path, value});
  context.out << AlignColumns(rows, "ll") << std::flush;
  const std::string job = output::ShortName(best->job());
  context.Say(absl::StrCat("next:\n  trainyard specs save ", best->job(),
                           " NAME                saves its spec in the catalogue\n"
                           "  trainyard clone ",
                           job,
                           " --set PATH=VALUE --follow\n"
                           "  trainyard sweep best ",
                           id, " --spec > best.yaml"));
  return link::kOk;
}

// Says in which state a sweep is now, and what to do next.
void TellSweep(const Context& context, const v1::Sweep& sweep, absl::string_view next) {
  context.Say(
      absl::StrCat(sweep.name(), " is ", SweepStateText(context.terminal, sweep.state()), next));
  PrintOne(context, sweep, sweep.name());
}

Result StopSweep(const Context& context, const StopSweepOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  v1::StopSweepRequest request;
  TY_ASSIGN_OR_RETURN(*request.mutable_name(), ResolveSweep(*link, options.sweep));
  request.set_cancel(options.cancel);
  TY_ASSIGN_OR_RETURN(const v1::Sweep sweep,
                      link->Call(&v1::SweepService::Stub::StopSweep, request));
  TellSweep(context, sweep,
            options.cancel
                ? std::string("; its trials that have not ended are cancelled")
                : absl::StrCat("; its trials are suspended, and `trainyard sweep resume ",
                               output::ShortName(sweep.name()), "` goes on with them"));
  return link::kOk;
}

Result ResumeSweep(const Context& context, const ResumeSweepOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  v1::ResumeSweepRequest request;
  TY_ASSIGN_OR_RETURN(*request.mutable_name(), ResolveSweep(*link, options.sweep));
  request.set_retry_failed(options.failed);
  TY_ASSIGN_OR_RETURN(const v1::Sweep sweep,
                      link->Call(&v1::SweepService::Stub::ResumeSweep, request));
  TellSweep(
      context, sweep,
      absl::StrCat("; trainyard sweep show ", output::ShortName(sweep.name()), " -f follows it"));
  return link::kOk;
}

Result RemoveSweeps(const Context& context, const RemoveSweepOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  std::vector<std::string> names;
  for (const std::string& word : options.sweeps) {
    TY_ASSIGN_OR_RETURN(names.emplace_back(), ResolveSweep(*link, word));
  }
  for (const std::string& name : names) {
    if (!options.yes && context.in_is_terminal &&
        !Confirm(context, absl::StrCat("delete the record of ", name, " for good?"),
                 /*yes_by_default=*/false)) {
      context.Say("nothing was deleted");
      continue;
    }
    v1::DeleteSweepRequest request;
    request.set_name(name);
    TY_RETURN_IF_ERROR(link->Call(&v1::SweepService::Stub::DeleteSweep, request).status());
    context.Say(absl::StrCat("deleted ", name, "; its jobs stay"));
  }
  return link::kOk;
}

void DeclareSweep(client::Flags& flags, std::string& sweep) {
  flags.Word("SWEEP", sweep, kSweepHelp).Required();
}

}  // namespace

// AddSweepRun has added the group.
void AddSweep(VerbTable& verbs) {
  verbs.Add<ListSweepsOptions>(
      "sweep ls", "List sweeps, newest first", "--user anna",
      [](client::Flags& flags, ListSweepsOptions& options) {
        flags.Value("--user", options.user, "Only sweeps of this user");
        flags.Value("--limit", options.limit, "At most this many sweeps (20)").Range(1, 1'000'000);
      },
      ListSweeps);
  verbs.Add<ShowSweepOptions>(
      "sweep show", "Show a sweep and its trials, the best first",
      "last -f\n  trainyard sweep show 3 --svg trials.svg",
      [](client::Flags& flags, ShowSweepOptions& options) {
        DeclareSweep(flags, options.sweep);
        flags.Switch("-f,--follow", options.follow, "Follow it to its end");
        flags.Switch("--log", options.log, "Print what was decided, and why");
        flags
            .Value("--svg", options.svg_file,
                   "Write a picture to this file, with a line for each trial; - for standard "
                   "output")
            .ShownAs("FILE");
      },
      ShowSweep);
  verbs.Add<BestOptions>(
      "sweep best", "Print the best trial of a sweep", "last --spec > best.yaml",
      [](client::Flags& flags, BestOptions& options) {
        DeclareSweep(flags, options.sweep);
        flags.Switch("--spec", options.spec, "Print the spec of its job, which can be submitted");
      },
      ShowBest);
  verbs.Add<StopSweepOptions>(
      "sweep stop", "Stop a sweep: no trial begins any more, and those that run are suspended", "3",
      [](client::Flags& flags, StopSweepOptions& options) {
        DeclareSweep(flags, options.sweep);
        flags.Switch("--cancel", options.cancel,
                     "Cancel its trials for good; the sweep cannot go on then");
      },
      StopSweep);
  verbs.Add<ResumeSweepOptions>(
      "sweep resume", "Go on with a sweep that was stopped", "3 --failed",
      [](client::Flags& flags, ResumeSweepOptions& options) {
        DeclareSweep(flags, options.sweep);
        flags.Switch("--failed", options.failed, "Run its failed trials again");
      },
      ResumeSweep);
  verbs.Add<RemoveSweepOptions>(
      "sweep rm", "Forget sweeps that have ended; their jobs stay", "3",
      [](client::Flags& flags, RemoveSweepOptions& options) {
        flags.Words("SWEEP", options.sweeps, kSweepHelp).Required();
        flags.Switch("-y,--yes", options.yes, "Do not ask");
      },
      RemoveSweeps);
}

}  // namespace trainyard::commands
