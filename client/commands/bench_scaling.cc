// bench scaling runs one spec on several numbers of devices, one run after the other.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/commands/load_spec.h"
#include "client/commands/saved_specs.h"
#include "client/commands/selector.h"
#include "client/commands/spec_changes.h"
#include "client/commands/verbs.h"
#include "client/link/follower.h"
#include "client/output/text.h"
#include "client/scaling/chart.h"
#include "client/scaling/report.h"
#include "client/spec_loader/spec_file.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/datasets.h"
#include "common/rpc/channel.h"
#include "common/spec/change.h"
#include "common/spec/resolve.h"

namespace trainyard::commands {
namespace {

using scaling::Measurement;
using scaling::Report;

struct BenchOptions {
  std::string source;         // the name of a job, or a spec file
  std::string device_counts;  // "1,2,4"
  int64_t steps = 0;          // 0: the default
  int runs = 1;
  SpecFlags spec;
  std::string output_file;  // a file that ends in .json, or a folder
  std::string svg_file;
};

constexpr int64_t kDefaultSteps = 100;
constexpr size_t kNameBytesMax = 63;
// The samples of the evaluation that ends each run. Nobody looks at its result.
constexpr int64_t kTestSamples = 64;
constexpr absl::Duration kCancelRunTimeout = absl::Seconds(5);
// The final losses of two runs of a spec that is not bitwise may differ by this much. Sums round
// differently on other numbers of devices, and training enlarges that with every step.
constexpr double kLossTolerance = 0.05;
constexpr const char* kMetrics[] = {"train.loss", "compute.seconds", "comm.seconds",
                                    "comm.exposed_seconds", "comm.bytes"};

// Reads a list of device counts such as "1,2,4".
absl::StatusOr<std::vector<int>> ParseCounts(const std::string& text) {
  std::vector<int> counts;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    int count = 0;
    const bool is_next = absl::SimpleAtoi(part, &count) && count >= 1 && count <= kDevicesMax &&
                         (counts.empty() || count > counts.back());
    if (!is_next) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--devices '", text, "' is not an ascending list of numbers of devices, such as 1,2,4"));
    }
    counts.push_back(count);
  }
  return counts;
}

std::string ModelName(const v1::JobSpec& spec) {
  const auto* oneof = v1::ModelSpec::descriptor()->oneof_decl(0);
  const auto* field = spec.model().GetReflection()->GetOneofFieldDescriptor(spec.model(), oneof);
  return field == nullptr ? "" : field->name();
}

// This class makes all runs of one report.
class Bench {
 public:
  Bench(const Context& context, link::ServerLink& link, const BenchOptions& options,
        v1::JobSpec spec, std::vector<int> counts)
      : context_(context), link_(link), spec_(std::move(spec)), counts_(std::move(counts)) {
    report_.source = options.source;
    report_.steps = options.steps > 0 ? options.steps : kDefaultSteps;
    report_.runs = options.runs;
    report_.tolerance = kLossTolerance;
  }

  // Makes and resolves the specs of all runs, so that a mistake is found before the first run.
  absl::Status Prepare();
  absl::StatusOr<Report> Run();

 private:
  absl::StatusOr<v1::JobSpec> SpecFor(int devices, int replicas, bool with_warm_up) const;
  absl::Status CheckFeasible() const;
  absl::StatusOr<v1::Job> RunJob(const v1::JobSpec& spec);
  absl::StatusOr<v1::Job> WaitForEnd(const std::string& name);
  absl::StatusOr<Measurement> MeasureJob(int devices, const v1::Job& job);

  const Context& context_;
  link::ServerLink& link_;
  const v1::JobSpec spec_;
  const std::vector<int> counts_;
  std::map<int, v1::JobSpec> specs_;
  Report report_;
};

absl::StatusOr<v1::JobSpec> Bench::SpecFor(int devices, int replicas, bool with_warm_up) const {
  v1::JobSpec spec = spec_;
  const std::string every = absl::StrCat(report_.steps, " steps");
  std::string name = spec.name();
  const std::string suffix = absl::StrCat("-on-", devices);
  name = absl::StrCat(name.substr(0, kNameBytesMax - suffix.size()), suffix);
  // Nothing but training may happen between the first step and the last, and no retry.
  std::vector<Change> changes = {{"name", JsonQuote(name)},
                                 {"devices.min", ""},
                                 {"devices.max", ""},
                                 {"devices.count", absl::StrCat(devices)},
                                 {"train.steps", absl::StrCat(report_.steps)},
                                 {"train.replicas", absl::StrCat(replicas)},
                                 {"checkpoint.every", every},
                                 {"evaluate.every", every},
                                 {"max_retries", "0"}};
  if (!with_warm_up) changes.push_back({"schedule.warmup_epochs", "0"});
  // The last step always evaluates, and a whole test split may take longer than all steps.
  const datasets::Facts* facts = datasets::Find(spec.data().dataset());
  if (facts != nullptr && facts->test_size > kTestSamples &&
      (spec.data().test_size() == 0 || spec.data().test_size() > kTestSamples)) {
    changes.push_back({"data.test_size", absl::StrCat(kTestSamples)});
  }
  for (const Change& change : changes) {
    TY_RETURN_IF_ERROR(spec::ApplyChange(spec, change.path, change.value));
  }
  return spec;
}

absl::Status Bench::Prepare() {
  const int stages = std::max(
      1, spec_.stages().has_count() ? spec_.stages().count() : spec_.stages().cuts_size() + 1);
  // All runs get the same replicas; otherwise they would not compute the same.
  const int replicas = std::max(spec_.train().replicas(), counts_.back() / stages);
  bool with_warm_up = true;
  for (const int devices : counts_) {
    TY_ASSIGN_OR_RETURN(v1::JobSpec spec, SpecFor(devices, replicas, with_warm_up));
    auto resolved = spec::ResolveSpec(spec);
    const auto violations = GetFieldViolations(resolved.status());
    if (violations.size() == 1 && absl::StartsWith(violations[0].field, "spec.schedule.warmup")) {
      context_.Say("the warm-up of the schedule is longer than a run, and left out");
      with_warm_up = false;
      TY_ASSIGN_OR_RETURN(spec, SpecFor(devices, replicas, with_warm_up));
      resolved = spec::ResolveSpec(spec);
    }
    if (!resolved.ok()) {
      return Annotate(resolved.status(), absl::StrCat("on ", Counted(devices, "device")));
    }
    report_.name = spec_.name();
    report_.model = ModelName(*resolved);
    report_.global_batch = resolved->train().global_batch();
    report_.replicas = resolved->train().replicas();
    report_.is_bitwise = resolved->train().reproducibility() == v1::REPRODUCIBILITY_BITWISE;
    specs_[devices] = std::move(spec);
  }
  return CheckFeasible();
}

// Asks whether the pool can hold the largest run, which would otherwise wait forever.
absl::Status Bench::CheckFeasible() const {
  v1::CreateJobRequest request;
  *request.mutable_spec() = specs_.rbegin()->second;
  request.set_validate_only(true);
  TY_ASSIGN_OR_RETURN(const v1::Job job, link_.Call(&v1::JobService::Stub::CreateJob, request));
  if (!job.explanation().infeasible()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the pool as it is can never hold ", Counted(counts_.back(), "device"),
                   " of this spec: ", absl::StrJoin(job.queue_reasons(), "; ")));
}

absl::StatusOr<v1::Job> Bench::WaitForEnd(const std::string& name) {
  link::Follower follower(link_, context_.clock, context_.rng, {.names = {name}, .metrics_of = ""});
  std::string told;
  while (!context_.interrupt.triggered()) {
    const auto update = follower.Next(absl::Milliseconds(100));
    if (!update.has_value()) continue;
    if (const auto* end = std::get_if<link::End>(&*update)) return end->status;
    const auto* job = std::get_if<v1::Job>(&*update);
    if (job == nullptr) continue;
    if (output::HasEnded(*job)) return *job;
    const std::string reasons =
        job->state() == v1::JOB_STATE_QUEUED ? absl::StrJoin(job->queue_reasons(), "; ") : "";
    if (!reasons.empty() && reasons != told) context_.Say(absl::StrCat("  waits: ", reasons));
    told = reasons;
  }
  v1::CancelJobRequest cancel;
  cancel.set_name(name);
  grpc::ClientContext call;  // an interrupt would end calls of the link at once
  rpc::SetTimeout(call, kCancelRunTimeout);
  v1::Job cancelled;
  (void)link_.jobs().CancelJob(&call, cancel, &cancelled);
  return absl::CancelledError(absl::StrCat("interrupted; ", name, " is cancelled"));
}

absl::StatusOr<v1::Job> Bench::RunJob(const v1::JobSpec& spec) {
  v1::CreateJobRequest request;
  *request.mutable_spec() = spec;
  request.set_request_id(MakeUuid(context_.rng));
  TY_ASSIGN_OR_RETURN(const v1::Job created, link_.Call(&v1::JobService::Stub::CreateJob, request));
  context_.Say(absl::StrCat(Counted(static_cast<size_t>(spec.devices().count()), "device"), ": ",
                            created.name()));
  TY_ASSIGN_OR_RETURN(v1::Job job, WaitForEnd(created.name()));
  if (job.state() == v1::JOB_STATE_SUCCEEDED) return job;
  return MakeError(
      absl::StatusCode::kAborted, "JOB_ENDED_BADLY",
      absl::StrCat(
          job.name(), " on ", Counted(static_cast<size_t>(spec.devices().count()), "device"),
          " is ", output::StateText(job.state()),
          job.failure().message().empty() ? "" : absl::StrCat(": ", job.failure().message())));
}

absl::StatusOr<Measurement> Bench::MeasureJob(int devices, const v1::Job& job) {
  v1::QueryMetricsRequest query;
  query.set_name(job.name());
  for (const char* metric : kMetrics) query.add_metrics(metric);
  TY_ASSIGN_OR_RETURN(const v1::QueryMetricsResponse answer,
                      link_.Call(&v1::JobService::Stub::QueryMetrics, query));
  scaling::Series series;
  for (const v1::MetricSeries& one : answer.series()) {
    for (const v1::MetricPoint& point : one.points()) {
      series[one.name()].push_back(
          {point.step(), point.value(),
           static_cast<double>(point.time().seconds()) + point.time().nanos() * 1e-9});
    }
  }
  TY_ASSIGN_OR_RETURN(Measurement measured, scaling::Measure(devices, report_.steps, series));
  measured.jobs = {job.name()};
  v1::ListCheckpointsRequest list;
  list.set_parent(job.name());
  TY_ASSIGN_OR_RETURN(const v1::ListCheckpointsResponse checkpoints,
                      link_.Call(&v1::CheckpointService::Stub::ListCheckpoints, list));
  if (!checkpoints.checkpoints().empty()) {
    for (const v1::CheckpointFile& file : checkpoints.checkpoints().rbegin()->files()) {
      if (file.name() == "model.safetensors") measured.weights = file.hash();
    }
  }
  context_.Say(absl::StrCat(
      "  ", output::RateText(static_cast<double>(report_.global_batch) / measured.step_seconds),
      " samples/s"));
  return measured;
}

absl::StatusOr<Report> Bench::Run() {
  std::map<int, std::vector<Measurement>> runs;
  // The runs take turns, so that a machine that changes its speed does so for all of them alike.
  for (int round = 0; round < report_.runs; ++round) {
    for (const auto& [devices, spec] : specs_) {
      TY_ASSIGN_OR_RETURN(const v1::Job job, RunJob(spec));
      TY_ASSIGN_OR_RETURN(Measurement measured, MeasureJob(devices, job));
      runs[devices].push_back(std::move(measured));
    }
  }
  for (const auto& [devices, measured] : runs) {
    report_.measured.push_back(scaling::Combine(measured));
  }
  return report_;
}

absl::Status WriteReport(const Context& context, const BenchOptions& options,
                         const Report& report) {
  std::string json = options.output_file;
  std::string svg = options.svg_file;
  if (!json.empty() && !absl::EndsWith(json, ".json")) {
    TY_RETURN_IF_ERROR(MakeDirectories(json));
    if (svg.empty()) svg = JoinPath(json, "scaling.svg");
    json = JoinPath(json, "scaling.json");
  }
  if (!json.empty()) {
    TY_RETURN_IF_ERROR(ReplaceFile(json, ReportJson(report)));
    context.Say(absl::StrCat("wrote ", json));
  }
  if (!svg.empty()) {
    TY_RETURN_IF_ERROR(ReplaceFile(svg, ReportSvg(report)));
    context.Say(absl::StrCat("wrote ", svg));
  }
  return absl::OkStatus();
}

Result BenchScaling(const Context& context, const BenchOptions& options) {
  TY_ASSIGN_OR_RETURN(const std::vector<int> counts, ParseCounts(options.device_counts));
  TY_ASSIGN_OR_RETURN(const std::vector<Change> changes, ChangesOf(options.spec));
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  v1::JobSpec spec;
  const absl::StatusOr<std::string> name =
      IsSpecFile(options.source) ? absl::NotFoundError("") : ResolveOne(*link, options.source);
  if (absl::IsNotFound(name.status()) &&
      (IsSpecFile(options.source) || MeansSavedSpec(options.source))) {
    TY_ASSIGN_OR_RETURN(spec_loader::SpecFile file, ReadSpec(context, options.source));
    TY_RETURN_IF_ERROR(ApplyChanges(options.spec, file).status());
    if (!file.mistakes.empty()) return TellMistakes(context, file, "nothing was run");
    spec = std::move(file.spec);
  } else {
    TY_RETURN_IF_ERROR(name.status());
    v1::GetJobRequest get;
    get.set_name(*name);
    TY_ASSIGN_OR_RETURN(const v1::Job job, link->Call(&v1::JobService::Stub::GetJob, get));
    spec = job.resolved_spec();
    for (const Change& change : changes) {
      TY_RETURN_IF_ERROR(spec::ApplyChange(spec, change.path, change.value));
    }
  }
  if (spec.has_program()) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.source,
                     " runs a program of its own; bench scaling measures the training of "
                     "models, whose batch it divides among devices"));
  }
  Bench bench(context, *link, options, std::move(spec), counts);
  TY_RETURN_IF_ERROR(bench.Prepare());
  TY_ASSIGN_OR_RETURN(const Report report, bench.Run());
  context.out << (context.options.IsTable() ? ReportText(report) : ReportJson(report))
              << std::flush;
  TY_RETURN_IF_ERROR(WriteReport(context, options, report));
  return report.AllAgree() ? link::kOk : link::kFailed;
}

}  // namespace

void AddBenchScaling(VerbTable& verbs) {
  verbs.Group("bench", "Measure a job on several numbers of devices");
  verbs.Add<BenchOptions>(
      "bench scaling",
      "Run a spec on several numbers of devices, and report the speed-up, a prediction for more, "
      "and whether the results agree",
      "jobs/googlenet-cifar10-small.yaml --devices 1,2 -O report",
      [](client::Flags& flags, BenchOptions& options) {
        flags
            .Word("JOB|FILE", options.source,
                  "A job whose spec is taken (12, last), or a spec in YAML or JSON")
            .Required();
        flags.Value("--devices", options.device_counts, "Numbers of devices, ascending: 1,2,4")
            .Required();
        flags.Value("--steps", options.steps, "Steps of each run (100)").Range(10, 10'000);
        flags.Value("--runs", options.runs, "Runs of each; the median counts (1)").Range(1, 100);
        flags.Repeated("--set", options.spec.set,
                       "Change of the spec for all runs, PATH=VALUE; may be repeated");
        flags.Value("-O,--output-file", options.output_file,
                    "File for the report as JSON, or a folder for scaling.json and scaling.svg");
        flags.Value("--svg", options.svg_file, "File for the picture");
      },
      BenchScaling);
}

}  // namespace trainyard::commands
