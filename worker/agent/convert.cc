// Converts between the daemon's types and the messages of trainyard.v1. No other file of the daemon
// does.
#include "worker/agent/convert.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "google/protobuf/util/json_util.h"

namespace trainyard::agent {
namespace {

// This is for a spec without on_disconnect, which the server never sends.
constexpr absl::Duration kDefaultKeep = absl::Minutes(10);

std::string StopReasonName(v1::StopReason reason) {
  switch (reason) {
    case v1::STOP_REASON_CANCEL:
      return "cancelled";
    case v1::STOP_REASON_SUSPEND:
      return "suspended";
    case v1::STOP_REASON_PREEMPT:
      return "preempted";
    case v1::STOP_REASON_DRAIN:
      return "drained";
    case v1::STOP_REASON_TIME_LIMIT:
      return "time_limit";
    case v1::STOP_REASON_RESIZE:
      return "resized";
    default:
      return kUnlistedReason;
  }
}

ResumeSource ReadSource(const v1::Checkpoint& checkpoint) {
  ResumeSource source;
  source.name = checkpoint.name();
  source.step = checkpoint.step();
  for (const v1::CheckpointFile& file : checkpoint.files()) {
    source.files.push_back({file.name(), file.size(), file.hash()});
  }
  return source;
}

run_dir::IsolationLevel LevelOf(v1::Isolation isolation) {
  switch (isolation) {
    case v1::ISOLATION_PROCESS:
      return run_dir::IsolationLevel::kProcess;
    case v1::ISOLATION_CGROUP:
      return run_dir::IsolationLevel::kCgroup;
    case v1::ISOLATION_SANDBOX:
      return run_dir::IsolationLevel::kSandbox;
    case v1::ISOLATION_CONTAINER:
      return run_dir::IsolationLevel::kContainer;
    default:
      return run_dir::IsolationLevel::kUnknown;
  }
}

v1::Isolation IsolationToProto(run_dir::IsolationLevel level) {
  switch (level) {
    case run_dir::IsolationLevel::kProcess:
      return v1::ISOLATION_PROCESS;
    case run_dir::IsolationLevel::kCgroup:
      return v1::ISOLATION_CGROUP;
    case run_dir::IsolationLevel::kSandbox:
      return v1::ISOLATION_SANDBOX;
    case run_dir::IsolationLevel::kContainer:
      return v1::ISOLATION_CONTAINER;
    case run_dir::IsolationLevel::kUnknown:
      break;
  }
  return v1::ISOLATION_UNSPECIFIED;
}

absl::Status ReadRun(const v1::DesiredAttempt& proto, DesiredAttempt& attempt) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  const auto printed =
      google::protobuf::util::MessageToJsonString(proto.spec(), &attempt.spec_json, options);
  attempt.runs_program = proto.spec().has_program();
  const v1::ProgramSpec& program = proto.spec().program();
  attempt.code_digest = program.code();
  attempt.isolation = LevelOf(program.isolation());
  attempt.has_image = !program.environment().container().empty();
  attempt.is_per_host =
      program.ranks() == v1::PROGRAM_RANKS_HOST || program.ranks() == v1::PROGRAM_RANKS_ONE;
  attempt.needs_secrets = program.secrets_size() > 0;
  if (!printed.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("its spec cannot be written as JSON: ", std::string(printed.message())));
  }
  attempt.owner = proto.owner();
  attempt.keep = proto.spec().on_disconnect().has_keep()
                     ? FromProto(proto.spec().on_disconnect().keep())
                     : kDefaultKeep;
  attempt.world_size = proto.world_size();
  for (const v1::DesiredRank& rank : proto.ranks()) {
    if (rank.rank() < 0 || rank.rank() >= proto.world_size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", rank.rank(), " does not fit world size ", proto.world_size()));
    }
    if (rank.cpus() < 0 || rank.memory_bytes() < 0) {
      return absl::InvalidArgumentError(absl::StrCat("rank ", rank.rank(), " has ", rank.cpus(),
                                                     " cpus and ", rank.memory_bytes(),
                                                     " bytes of memory; neither can be negative"));
    }
    attempt.ranks.push_back({rank.rank(), rank.device(), rank.cpus(), rank.memory_bytes()});
  }
  if (attempt.ranks.empty()) return absl::InvalidArgumentError("it lists no ranks of this worker");
  std::sort(attempt.ranks.begin(), attempt.ranks.end(),
            [](const DesiredRank& a, const DesiredRank& b) { return a.rank < b.rank; });
  if (proto.has_resume_from()) attempt.resume_from = ReadSource(proto.resume_from());
  if (proto.has_init_from() && !proto.has_resume_from()) {
    attempt.init_from = ReadSource(proto.init_from());
  }
  for (const auto& [key, value] : proto.rendezvous()) attempt.rendezvous[key] = value;
  attempt.spans_workers = proto.spans_workers();
  attempt.checkpoint_request = proto.checkpoint_request();
  attempt.failures = std::max(proto.failures(), 0);
  attempt.run_time = std::max(FromProto(proto.run_time()), absl::ZeroDuration());
  return absl::OkStatus();
}

absl::StatusOr<DesiredAttempt> ReadAttempt(const v1::DesiredAttempt& proto) {
  DesiredAttempt attempt;
  attempt.fencing_token = proto.fencing_token();
  switch (proto.action()) {
    case v1::DesiredAttempt::RUN:
      attempt.action = DesiredAttempt::Action::kRun;
      TY_RETURN_IF_ERROR(ReadRun(proto, attempt));
      return attempt;
    case v1::DesiredAttempt::STOP:
      attempt.action = DesiredAttempt::Action::kStop;
      attempt.stop.reason = StopReasonName(proto.stop().reason());
      attempt.stop.grace =
          proto.stop().has_grace() ? FromProto(proto.stop().grace()) : kUnlistedGrace;
      return attempt;
    case v1::DesiredAttempt::REMOVE:
      attempt.action = DesiredAttempt::Action::kRemove;
      return attempt;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("action ", static_cast<int>(proto.action()), " is unknown"));
  }
}

v1::FailureClass FailureClassOf(run_dir::Outcome outcome) {
  switch (outcome) {
    case run_dir::Outcome::kUserError:
      return v1::FAILURE_CLASS_USER_ERROR;
    case run_dir::Outcome::kHardware:
      return v1::FAILURE_CLASS_HARDWARE;
    case run_dir::Outcome::kTransient:
      return v1::FAILURE_CLASS_TRANSIENT;
    case run_dir::Outcome::kSucceeded:
    case run_dir::Outcome::kStopped:
      break;
  }
  return v1::FAILURE_CLASS_UNSPECIFIED;
}

v1::AttemptOutcome OutcomeToProto(const run_dir::AttemptExit& exit, int64_t step) {
  v1::AttemptOutcome proto;
  proto.set_step(step);
  switch (exit.outcome) {
    case run_dir::Outcome::kSucceeded:
      proto.set_kind(v1::AttemptOutcome::SUCCEEDED);
      break;
    case run_dir::Outcome::kStopped:
      proto.set_kind(v1::AttemptOutcome::STOPPED);
      proto.mutable_failure()->set_reason(absl::AsciiStrToUpper(exit.reason));
      proto.mutable_failure()->set_message(exit.message);
      break;
    default:
      proto.set_kind(v1::AttemptOutcome::FAILED);
      proto.mutable_failure()->set_failure_class(FailureClassOf(exit.outcome));
      proto.mutable_failure()->set_reason(exit.reason);
      proto.mutable_failure()->set_message(exit.message);
      proto.mutable_failure()->set_exit_code(exit.signal != 0 ? 128 + exit.signal : exit.exit_code);
      proto.set_failed_rank(exit.failed_rank);
      break;
  }
  return proto;
}

// Keeps only what the server accepts, because a user's script may write anything into its progress.
constexpr size_t kReasonBytesMax = 500;

// Returns the beginning of a text, cut between characters.
absl::string_view Cut(absl::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  size_t end = bytes_max;
  const auto is_inside = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; };
  while (end > 0 && is_inside(text[end])) --end;
  return text.substr(0, end);
}

void HostingToProto(const run_dir::Progress& progress, v1::Progress& proto) {
  for (const run_dir::RankHosting& host : progress.hosting) {
    v1::RankHosting* added = proto.add_hosting();
    added->set_rank(host.rank);
    added->set_first_replica(host.first_replica);
    added->set_replicas(host.replicas);
    added->set_stage(host.stage);
    const bool is_speed = std::isfinite(host.samples_per_s) && host.samples_per_s > 0;
    added->set_samples_per_s(is_speed ? host.samples_per_s : 0);
  }
  proto.set_hosting_reason(std::string(Cut(progress.hosting_reason, kReasonBytesMax)));
}

void ProgressToProto(const ReportedAttempt& attempt, v1::Progress& proto) {
  const run_dir::Progress& progress = *attempt.progress;
  proto.set_step(progress.step);
  proto.set_total_steps(progress.total_steps);
  proto.set_epoch(progress.epoch);
  proto.set_epochs(progress.epochs);
  proto.set_samples_per_s(progress.samples_per_s);
  proto.set_data_wait_fraction(progress.data_wait_fraction);
  proto.set_checkpoint_step(attempt.checkpoint_step);
  if (attempt.eta.has_value()) *proto.mutable_eta() = ToProto(*attempt.eta);
  HostingToProto(progress, proto);
  proto.set_fallbacks(static_cast<int32_t>(progress.fallbacks));
  proto.set_first_fallback(std::string(Cut(progress.first_fallback, kReasonBytesMax)));
  proto.set_disk_full(std::string(Cut(progress.disk_full, kReasonBytesMax)));
}

v1::ObservedState StateToProto(ReportedAttempt::State state) {
  switch (state) {
    case ReportedAttempt::State::kStarting:
      return v1::OBSERVED_STATE_STARTING;
    case ReportedAttempt::State::kRunning:
      return v1::OBSERVED_STATE_RUNNING;
    case ReportedAttempt::State::kStopping:
      return v1::OBSERVED_STATE_STOPPING;
    case ReportedAttempt::State::kExited:
      return v1::OBSERVED_STATE_EXITED;
  }
  return v1::OBSERVED_STATE_UNSPECIFIED;
}

}  // namespace

int64_t GlobalBatch(const std::string& spec_json) {
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  v1::JobSpec spec;
  const auto parsed = google::protobuf::util::JsonStringToMessage(spec_json, &spec, options);
  return parsed.ok() ? spec.train().global_batch() : 0;
}

absl::Duration FromProto(const google::protobuf::Duration& duration) {
  return absl::Seconds(duration.seconds()) + absl::Nanoseconds(duration.nanos());
}

google::protobuf::Duration ToProto(absl::Duration duration) {
  google::protobuf::Duration proto;
  absl::Duration rest;
  proto.set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &rest));
  proto.set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
  return proto;
}

absl::StatusOr<Desired> FromProto(const v1::SyncWorkerResponse& response) {
  Desired desired;
  desired.revision = response.desired_revision();
  for (const v1::DesiredAttempt& proto : response.attempts()) {
    TY_ASSIGN_OR_RETURN(const AttemptId id, ParseAttemptName(proto.attempt()));
    auto attempt = ReadAttempt(proto);
    if (!attempt.ok()) {
      return Annotate(attempt.status(),
                      absl::StrCat("the server wants ", proto.attempt(), ", but"));
    }
    desired.attempts[id] = *std::move(attempt);
  }
  for (const v1::DesiredTunnel& proto : response.tunnels()) {
    TY_ASSIGN_OR_RETURN(const AttemptId id, ParseAttemptName(proto.attempt()));
    desired.tunnels.push_back({proto.tunnel(), id, proto.fencing_token(), proto.rank()});
  }
  return desired;
}

v1::ObservedAttempt ToProto(const ReportedAttempt& attempt) {
  v1::ObservedAttempt proto;
  proto.set_attempt(AttemptName(attempt.id));
  proto.set_fencing_token(attempt.fencing_token);
  proto.set_state(StateToProto(attempt.state));
  proto.set_isolation(IsolationToProto(attempt.isolation));
  if (attempt.progress.has_value()) {
    ProgressToProto(attempt, *proto.mutable_progress());
    proto.set_data_digest(attempt.progress->data_digest);
    proto.set_model_digest(attempt.progress->model_digest);
  }
  if (attempt.exit.has_value()) {
    *proto.mutable_outcome() =
        OutcomeToProto(*attempt.exit, attempt.progress.has_value() ? attempt.progress->step : 0);
  }
  for (const auto& [key, value] : attempt.rendezvous) (*proto.mutable_rendezvous())[key] = value;
  for (const auto& [name, value] : attempt.metrics) (*proto.mutable_metrics())[name] = value;
  proto.set_drained(attempt.drained);
  return proto;
}

namespace {

void UsageToProto(const DeviceUsage& usage, v1::DeviceUsage& proto) {
  if (usage.utilization) proto.set_utilization(*usage.utilization);
  if (usage.memory_utilization) proto.set_memory_utilization(*usage.memory_utilization);
  if (usage.memory_bytes) proto.set_memory_bytes(*usage.memory_bytes);
  if (usage.power_watts) proto.set_power_watts(*usage.power_watts);
  if (usage.power_limit_watts) proto.set_power_limit_watts(*usage.power_limit_watts);
  if (usage.temperature_celsius) proto.set_temperature_celsius(*usage.temperature_celsius);
  if (usage.ecc_errors) proto.set_ecc_errors(*usage.ecc_errors);
  proto.set_slowed_by(usage.slowed_by);
}

}  // namespace

v1::Device ToProto(const Device& device) {
  v1::Device proto;
  proto.set_name(device.name);
  proto.set_type(device.type);
  proto.set_memory_bytes(device.memory_bytes);
  switch (device.health) {
    case Device::Health::kOk:
      proto.set_health(v1::DEVICE_HEALTH_OK);
      break;
    case Device::Health::kQuarantined:
      proto.set_health(v1::DEVICE_HEALTH_QUARANTINED);
      break;
    case Device::Health::kUnmanagedUse:
      proto.set_health(v1::DEVICE_HEALTH_UNMANAGED_USE);
      break;
  }
  for (const int64_t cpu : device.cpus) proto.add_cpus(static_cast<int32_t>(cpu));
  proto.set_threads(device.threads);
  proto.set_product(device.product);
  proto.set_health_reason(device.health_reason);
  proto.set_island(device.island);
  proto.set_bf16(device.bf16);
  if (device.usage.has_value()) UsageToProto(*device.usage, *proto.mutable_usage());
  return proto;
}

v1::DatasetList ToProto(const Datasets& datasets) {
  v1::DatasetList proto;
  for (const DatasetSplit& split : datasets) {
    v1::DatasetSplit& added = *proto.add_splits();
    added.set_dataset(split.dataset);
    added.set_path(split.path);
    added.set_split(split.split);
    added.set_samples(split.samples);
    added.set_classes(split.classes);
    added.set_shape(split.shape);
    added.set_digest(split.digest);
    added.set_error(split.error);
  }
  return proto;
}

}  // namespace trainyard::agent
