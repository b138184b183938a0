// show prints all that is known about jobs.
#include <algorithm>
#include <map>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/commands/code_diff.h"
#include "client/commands/code_files.h"
#include "client/commands/follow.h"
#include "client/commands/hosting_table.h"
#include "client/commands/saved_specs.h"
#include "client/commands/selector.h"
#include "client/commands/sheet.h"
#include "client/commands/verbs.h"
#include "client/output/progress.h"
#include "client/output/proto_text.h"
#include "client/output/table.h"
#include "client/output/text.h"
#include "common/base/duration.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"

namespace trainyard::commands {
namespace {

struct ShowOptions {
  std::vector<std::string> jobs;
  bool spec = false;
  bool events = false;
  bool code = false;
  bool environment = false;
};

std::string ModelText(const v1::JobSpec& spec) {
  const auto* oneof = v1::ModelSpec::descriptor()->oneof_decl(0);
  const auto* field = spec.model().GetReflection()->GetOneofFieldDescriptor(spec.model(), oneof);
  return field == nullptr ? "" : field->name();
}

// Returns the command as a person would type it, or that there is a script.
std::string ProgramText(const v1::ProgramSpec& program) {
  const std::string where =
      program.directory().empty() ? "" : absl::StrCat(" in ", program.directory());
  if (program.command().empty()) return absl::StrCat("a script", where);
  return absl::StrCat(absl::StrJoin(program.command(), " "), where);
}

// Returns "epochs=2, lr=0.3", which stand in the command as {epochs} and {lr}.
std::string ParamsText(const v1::ProgramSpec& program) {
  const std::map<std::string, std::string> params(program.params().begin(), program.params().end());
  return absl::StrJoin(params, ", ", absl::PairFormatter("="));
}

std::string TimesText(const v1::Job& job, absl::Time now) {
  if (!job.has_start_time()) return "";
  const absl::Time end = job.has_end_time() ? output::ToTime(job.end_time()) : now;
  return absl::StrCat(output::TimeText(job.start_time()), ", for ",
                      DurationText(end - output::ToTime(job.start_time())));
}

std::string FinalMetrics(const v1::Job& job) {
  const std::map<std::string, double> sorted(job.final_metrics().begin(),
                                             job.final_metrics().end());
  return absl::StrJoin(sorted, "\n", [](std::string* out, const auto& metric) {
    absl::StrAppend(out, metric.first, " ",
                    metric.first.find("accuracy") != std::string::npos ||
                            metric.first.find("top5") != std::string::npos
                        ? output::PercentText(metric.second)
                        : output::NumberText(metric.second));
  });
}

// Prints what the user asked for at submission besides the spec.
void PrintConditions(const v1::Job& job, Sheet& sheet) {
  if (!job.array().empty()) {
    sheet.Line("array",
               absl::StrCat("job ", job.array_index() + 1, " of ", FormatCount(job.array_size()),
                            ", which begin with ", job.array(),
                            job.array_parallel() > 0
                                ? absl::StrCat("; at most ", job.array_parallel(), " at a time")
                                : ""));
  }
  sheet.Line("after", absl::StrJoin(job.dependencies(), "\n", [](std::string* out, const auto& d) {
               absl::StrAppend(out, d.job(), d.ok() ? " has succeeded" : " has ended");
             }));
  if (job.has_begin_time()) {
    sheet.Line("begins", absl::StrCat("not before ", output::TimeText(job.begin_time())));
  }
  sheet.Line("reservation", job.reservation());
  sheet.Line("project", job.resolved_spec().project());
  std::vector<std::string> tags(job.resolved_spec().tags().begin(),
                                job.resolved_spec().tags().end());
  tags.insert(tags.end(), job.added_tags().begin(), job.added_tags().end());
  sheet.Line("tags", absl::StrJoin(tags, ", "));
  sheet.Line("retained", job.resolved_spec().retain());
}

// Prints why a job is in its state, and what the user can do about it.
void PrintState(const Context& context, const v1::Job& job, Sheet& sheet) {
  const std::string id = output::ShortName(job.name());
  sheet.Line("state", context.terminal.Style(output::StateStyle(job.state()),
                                             output::StateText(job.state())));
  if (job.state() == v1::JOB_STATE_QUEUED) {
    sheet.Line("waits", absl::StrJoin(job.queue_reasons(), "\n"));
    sheet.Line("", absl::StrCat("`trainyard explain ", id,
                                "` says when it starts, and what would start it now"));
  } else {
    sheet.Line("contact", absl::StrJoin(job.queue_reasons(), "\n"));
  }
  if (output::IsHeld(job)) {
    sheet.Line("held", absl::StrCat("for a person: `trainyard resume ", id,
                                    "` queues it again, `trainyard cancel ", id, "` gives it up"));
  }
}

// Says how often the job came out the same when it was run again.
std::string VerifiedText(const v1::Job& job) {
  if (!job.has_verified()) return "";
  const v1::VerificationSummary& verified = job.verified();
  return absl::StrCat(
      "reproduced ", verified.reproduced(), " of ", verified.runs(),
      verified.runs() == 1 ? " time" : " times", ", last ",
      absl::FormatTime("%Y-%m-%d", output::ToTime(verified.last_time()), absl::LocalTimeZone()),
      verified.last_devices().empty() ? "" : " on ", verified.last_devices());
}

void PrintFailure(const v1::Job& job, Sheet& sheet) {
  const v1::Failure& failure = job.failure();
  if (failure.message().empty()) return;
  sheet.Line("failure", absl::StrCat(output::FailureClassText(failure.failure_class()),
                                     failure.reason().empty() ? "" : " ", failure.reason(), "\n",
                                     failure.message()));
}

// Warns of operations that take longer than they should.
std::string FallbackText(const v1::Progress& progress) {
  if (progress.fallbacks() == 0) return "";
  if (progress.fallbacks() == 1) {
    return absl::StrCat("1 operation is computed by slower kernels, because cuDNN refused it\n",
                        progress.first_fallback());
  }
  return absl::StrCat(FormatCount(progress.fallbacks()),
                      " operations are computed by slower kernels, because cuDNN refused them\n"
                      "first: ",
                      progress.first_fallback(), "\nthe log of each rank names its own");
}

// Returns what the ranks of the job hold of their hosts, or what they ask for.
std::string ResourcesText(const v1::Job& job) {
  int64_t cpus = 0;
  int64_t memory_bytes = 0;
  for (const v1::RankPlacement& rank : job.placement()) {
    cpus += rank.cpus();
    memory_bytes += rank.memory_bytes();
  }
  const std::string held = output::HostAmountText(cpus, memory_bytes);
  if (!held.empty()) return absl::StrCat(held, " held");
  const v1::ResourcesSpec& resources = job.resolved_spec().resources();
  const std::string wanted = output::HostAmountText(resources.cpus(), resources.memory().bytes());
  return wanted.empty() ? "" : absl::StrCat(wanted, " for each rank");
}

// Prints where the job runs, how far it is and what it has produced.
void PrintTraining(const v1::Job& job, Sheet& sheet) {
  const v1::JobSpec& spec = job.resolved_spec();
  if (spec.has_program()) {
    sheet.Line("program", ProgramText(spec.program()));
    sheet.Line("params", ParamsText(spec.program()));
    sheet.Line("data", spec.data().dataset());
    sheet.Line("devices", output::DevicesText(spec));
  } else {
    sheet.Line("model", absl::StrCat(ModelText(spec), " on ", spec.data().dataset()));
    sheet.Line("devices", absl::StrCat(output::DevicesText(spec), " for ", spec.train().replicas(),
                                       spec.train().replicas() == 1 ? " replica" : " replicas"));
    sheet.Line("precision", output::PrecisionText(spec.train().precision()));
  }
  sheet.Line("resources", ResourcesText(job));
  if (job.attempt() > 0) {
    sheet.Line("attempt", absl::StrCat(job.attempt(), " on ", PlacementText(job)));
  }
  if (job.retries() > 0) {
    sheet.Line("retries", absl::StrCat(job.retries(), " of ", spec.max_retries()));
  }
  if (job.progress().total_steps() > 0) {
    output::ProgressView view = output::ViewOf(job.progress());
    if (job.state() != v1::JOB_STATE_RUNNING) view.eta.reset();
    sheet.Line("progress", output::ProgressTextLine(view));
  }
  if (job.state() == v1::JOB_STATE_RUNNING) {
    sheet.Line("disk full", job.progress().disk_full());
  }
  sheet.Line("hosting", HostingText(job));
  sheet.Line("fallbacks", FallbackText(job.progress()));
  sheet.Line("metrics", FinalMetrics(job));
  if (job.progress().checkpoint_step() > 0) {
    sheet.Line("checkpoint", absl::StrCat("step ", job.progress().checkpoint_step()));
  }
}

// Prints what the job takes on the server's disk, and what of it is gone for good.
void PrintStored(const v1::Job& job, Sheet& sheet) {
  std::vector<std::string> kept;
  const auto add = [&kept](const char* part, int64_t bytes) {
    if (bytes > 0) kept.push_back(absl::StrCat(part, " ", FormatBytes(bytes)));
  };
  add("checkpoints", job.stored().checkpoints());
  add("logs", job.stored().logs());
  add("metrics", job.stored().metrics());
  sheet.Line("stored", absl::StrJoin(kept, ", "));
  for (const int part : job.deleted_parts()) {
    sheet.Line("deleted", part == v1::JOB_PART_LOGS ? "logs" : "metrics, but for the last values");
  }
}

// Returns where an imported job ran: "jobs/12 of anna, submitted 2026-11-20 22:57:55 CET".
std::string OriginOfImport(const v1::ImportOrigin& origin) {
  return absl::StrCat(origin.job(), origin.user().empty() ? "" : " of ", origin.user(),
                      origin.has_create_time() ? ", submitted " : "",
                      output::TimeText(origin.create_time()), origin.uid().empty() ? "" : "\nuid ",
                      origin.uid());
}

// Prints who submitted the job, what it has used, and where it comes from.
void PrintHistory(const v1::Job& job, absl::Time now, Sheet& sheet) {
  const bool is_imported = job.provenance().has_imported();
  sheet.Line(is_imported ? "imported" : "submitted",
             absl::StrCat(output::TimeText(job.create_time()), " by ", job.user()));
  if (is_imported) sheet.Line("from", OriginOfImport(job.provenance().imported()));
  sheet.Line("ran", TimesText(job, now));
  if (job.has_device_time()) {
    sheet.Line("used", absl::StrCat(DurationText(output::ToDuration(job.device_time())),
                                    " of device time"));
  }
  if (job.preemptions() > 0) {
    sheet.Line("preempted",
               absl::StrCat(job.preemptions(), job.preemptions() == 1 ? " time" : " times"));
  }
  const v1::Provenance& provenance = job.provenance();
  sheet.Line("cloned from", provenance.cloned_from());
  sheet.Line("saved spec", SavedName(provenance.saved_spec()));
  sheet.Line("trial", provenance.trial());
  sheet.Line("verifies", provenance.verifies());
  sheet.Line("code", absl::StrCat(job.resolved_spec().program().code(),
                                  OriginText(provenance.code()).empty() ? "" : "\n",
                                  OriginText(provenance.code())));
  sheet.Line("started from", provenance.parent_checkpoint());
  sheet.Line("verified", VerifiedText(job));
  sheet.Line("data", provenance.data_digest());
  sheet.Line("server", provenance.server_version());
  sheet.Line("worker", provenance.worker_version());
  sheet.Line("uid", job.uid());
}

// Says how the ranks are kept apart from the rest of their hosts.
absl::string_view IsolationText(v1::Isolation isolation) {
  switch (isolation) {
    case v1::ISOLATION_PROCESS:
      return "process group, without a limit of memory";
    case v1::ISOLATION_CGROUP:
      return "control group";
    case v1::ISOLATION_SANDBOX:
      return "sandbox";
    case v1::ISOLATION_CONTAINER:
      return "container";
    default:
      return "";
  }
}

void PrintJob(const Context& context, const v1::Job& job, v1::Isolation isolation) {
  Sheet sheet(context.out);
  sheet.Line("job", absl::StrCat(job.name(), "  ", job.resolved_spec().name()));
  sheet.Line("description", job.resolved_spec().description());
  sheet.Line("note", job.note());
  PrintState(context, job, sheet);
  PrintConditions(job, sheet);
  PrintFailure(job, sheet);
  PrintTraining(job, sheet);
  sheet.Line("isolation", IsolationText(isolation));
  PrintStored(job, sheet);
  PrintHistory(job, context.clock.Now(), sheet);
}

absl::StatusOr<std::vector<v1::Event>> FetchEvents(link::ServerLink& link,
                                                   const std::string& name) {
  v1::ListEventsRequest request;
  request.set_parent(name);
  request.set_page_size(1000);
  std::vector<v1::Event> events;
  while (true) {
    TY_ASSIGN_OR_RETURN(v1::ListEventsResponse page,
                        link.Call(&v1::JobService::Stub::ListEvents, request));
    events.insert(events.end(), page.events().begin(), page.events().end());
    if (page.next_page_token().empty()) return events;
    request.set_page_token(page.next_page_token());
  }
}

absl::Status PrintEvents(const Context& context, link::ServerLink& link, const std::string& name) {
  TY_ASSIGN_OR_RETURN(const std::vector<v1::Event> events, FetchEvents(link, name));
  output::Table table({{"TIME"}, {"EVENT"}, {"BY"}, {"RESOURCE"}, {"WHY"}});
  for (const v1::Event& event : events) {
    table.AddRow({output::TimeText(event.time()), event.type(), event.actor(), event.resource(),
                  event.message()});
  }
  context.out << "\n" << table.Render();
  return absl::OkStatus();
}

// Prints what the program ran in. For a clone it says what is not as it was for the original.
absl::Status PrintEnvironment(const Context& context, link::ServerLink& link, const v1::Job& job) {
  TY_ASSIGN_OR_RETURN(const v1::ProgramEnvironment found, EnvironmentOf(link, job.name()));
  if (PrintOne(context, found, job.name())) return absl::OkStatus();
  if (found.ByteSizeLong() == 0) {
    context.Say(absl::StrCat("the environment of ", job.name(),
                             " is not known: only programs have one, once they run"));
    return absl::OkStatus();
  }
  Sheet sheet(context.out);
  sheet.Line("interpreter", found.interpreter());
  sheet.Line("image", found.image_digest());
  sheet.Line("driver", found.driver());
  sheet.Line("system", found.system());
  sheet.Line("packages", found.packages());
  const std::string& origin = job.provenance().cloned_from();
  if (origin.empty()) return absl::OkStatus();
  const auto before = EnvironmentOf(link, origin);
  if (!before.ok()) return absl::OkStatus();  // it was deleted
  const std::string differences = EnvironmentDifferences(*before, found, origin, job.name());
  context.out << "\n"
              << (differences.empty() ? absl::StrCat("as for ", origin, "\n") : differences);
  return absl::OkStatus();
}

// A spec that is handed on should train on the same data. Which data that was is known once the
// first attempt has read them.
void PinData(v1::Job& job) {
  if (job.provenance().data_digest().empty()) return;
  v1::DataSpec& data = *job.mutable_resolved_spec()->mutable_data();
  if (data.digest().empty()) data.set_digest(job.provenance().data_digest());
}

// Returns how the present or last attempt is kept apart. A server before this version does not say.
v1::Isolation IsolationOf(link::ServerLink& link, const v1::Job& job) {
  if (job.attempt() == 0) return v1::ISOLATION_UNSPECIFIED;
  v1::ListAttemptsRequest request;
  request.set_parent(job.name());
  const auto attempts = link.Call(&v1::JobService::Stub::ListAttempts, request);
  if (!attempts.ok() || attempts->attempts().empty()) return v1::ISOLATION_UNSPECIFIED;
  return attempts->attempts(attempts->attempts_size() - 1).isolation();
}

Result Show(const Context& context, const ShowOptions& options) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> names, ResolveSelectors(*link, options.jobs));
  std::vector<v1::Job> jobs;
  for (const std::string& name : names) {
    v1::GetJobRequest request;
    request.set_name(name);
    TY_ASSIGN_OR_RETURN(v1::Job job, link->Call(&v1::JobService::Stub::GetJob, request));
    jobs.push_back(std::move(job));
  }
  if (options.code || options.environment) {
    for (const v1::Job& job : jobs) {
      if (options.code) TY_RETURN_IF_ERROR(PrintCode(context, *link, job));
      if (options.environment) TY_RETURN_IF_ERROR(PrintEnvironment(context, *link, job));
    }
    return link::kOk;
  }
  std::vector<const google::protobuf::Message*> messages;
  messages.reserve(jobs.size());
  for (v1::Job& job : jobs) {
    PinData(job);
    messages.push_back(
        options.spec ? static_cast<const google::protobuf::Message*>(&job.resolved_spec()) : &job);
  }
  const bool is_spec_yaml = options.spec && (context.options.format == Format::kYaml ||
                                             context.options.format == Format::kTable);
  if (!is_spec_yaml) {
    const bool is_done = jobs.size() == 1 ? PrintOne(context, *messages[0], names[0])
                                          : PrintList(context, messages, names);
    if (is_done) return link::kOk;
  }
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (i > 0) context.out << "\n";
    if (options.spec) {
      context.out << "# " << names[i] << ", resolved\n"
                  << output::SpecYaml(jobs[i].resolved_spec());
      continue;
    }
    PrintJob(context, jobs[i], IsolationOf(*link, jobs[i]));
    if (options.events) TY_RETURN_IF_ERROR(PrintEvents(context, *link, names[i]));
  }
  return link::kOk;
}

}  // namespace

void AddShow(VerbTable& verbs) {
  verbs.Add<ShowOptions>(
      "show", "Show all that is known about jobs", "last --events",
      [](client::Flags& flags, ShowOptions& options) {
        flags.Words("JOB", options.jobs, kSelectorHelp).Required();
        flags.Switch("--spec", options.spec,
                     "Show only the resolved spec, as YAML that submit accepts");
        flags.Switch("--events", options.events, "Show the history too");
        flags.Switch("--code", options.code,
                     "Show only the files of the program's code, and from which commit they come");
        flags.Switch(
            "--environment", options.environment,
            "Show only what the program ran in: Python and its packages, image, driver, system");
      },
      Show);
}

}  // namespace trainyard::commands
