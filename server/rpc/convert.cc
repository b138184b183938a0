// Converts the records of the core to messages of the API.
#include "server/rpc/convert.h"

#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/hash.h"
#include "common/base/ids.h"
#include "common/base/report_limits.h"
#include "common/base/strings.h"
#include "common/spec/array.h"
#include "server/codec/progress.h"
#include "server/codec/submission.h"
#include "server/rpc/limits.h"

namespace trainyard::rpc {
namespace {

// The core's words are those of the API without their prefix. A value that has no word in the API
// (kNone) becomes UNSPECIFIED.
template <typename Enum>
Enum ParseEnum(absl::string_view prefix, absl::string_view text,
               bool (*parse)(google::protobuf::ConstStringParam, Enum*)) {
  Enum value = static_cast<Enum>(0);
  parse(absl::StrCat(prefix, text), &value);
  return value;
}

v1::Failure FailureProto(const core::Failure& failure) {
  v1::Failure proto;
  proto.set_failure_class(ParseEnum<v1::FailureClass>(
      "FAILURE_CLASS_", core::Text(failure.failure_class), &v1::FailureClass_Parse));
  proto.set_reason(failure.reason);
  // The store may have longer ones of an older server.
  proto.set_message(PlainText(failure.message, kFailureMessageBytesMax));
  proto.set_exit_code(failure.exit_code);
  return proto;
}

std::optional<core::Failure> FailureOf(const core::JobState& state) {
  if (const auto* failed = std::get_if<core::job_fsm::Failed>(&state)) return failed->failure;
  if (const auto* queued = std::get_if<core::job_fsm::Queued>(&state)) return queued->last_failure;
  if (const auto* held = std::get_if<core::job_fsm::Suspended>(&state)) return held->failure;
  return std::nullopt;
}

std::optional<core::Failure> FailureOf(const core::AttemptState& state) {
  if (const auto* failed = std::get_if<core::attempt_fsm::Failed>(&state)) return failed->failure;
  if (const auto* lost = std::get_if<core::attempt_fsm::Lost>(&state)) return lost->failure;
  if (const auto* stopping = std::get_if<core::attempt_fsm::Stopping>(&state)) {
    if (stopping->reason == core::StopReason::kNone) return stopping->failure;
  }
  return std::nullopt;
}

template <typename Message>
void AddPlacement(const std::vector<core::RankPlacement>& ranks, Message& message) {
  for (const core::RankPlacement& rank : ranks) {
    auto* proto = message.add_placement();
    proto->set_rank(rank.rank);
    proto->set_worker(WorkerName(rank.worker));
    proto->set_device(rank.device);
    proto->set_cpus(rank.held.cpus);
    proto->set_memory_bytes(rank.held.memory_bytes);
  }
}

void SetProgress(const core::Progress& progress, int64_t checkpoint_step, v1::Progress& proto) {
  proto = codec::DecodeProgress(progress);
  proto.set_checkpoint_step(checkpoint_step);
}

void SetProvenance(const core::JobRecord& job, v1::Provenance& proto) {
  proto.set_worker_version(job.worker_version);
  proto.set_data_digest(job.data_digest);
  proto.set_model_digest(job.model_digest);
}

// Returns the uid of a job of an array. It is the same for every reader at every time, and differs
// between the jobs of an array.
std::string ElementUid(const std::string& uid, int32_t index) {
  const std::string hash = ContentHash(absl::StrCat(uid, "/", index));
  const absl::string_view digits = absl::string_view(hash).substr(hash.size() - 32);
  return absl::StrCat(digits.substr(0, 8), "-", digits.substr(8, 4), "-8", digits.substr(13, 3),
                      "-8", digits.substr(17, 3), "-", digits.substr(20));
}

template <typename Mutable>
void SetTimeUnlessZero(int64_t microseconds, Mutable mutable_time) {
  if (microseconds != 0) *mutable_time() = ToTimestamp(microseconds);
}

}  // namespace

v1::JobSpec ResolvedSpecOf(const core::Submission& submission) {
  v1::JobSpec resolved;
  // The submission was made from it, so it can be parsed.
  TY_CHECK(resolved.ParseFromString(submission.resolved_spec));
  return resolved;
}

v1::JobSpec SpecOf(const core::Submission& submission) {
  v1::JobSpec spec;
  // Nothing has read it since it was submitted. If the store has damaged it, the resolved spec says
  // the same in full.
  return spec.ParseFromString(submission.spec) ? spec : ResolvedSpecOf(submission);
}

v1::JobSpec ResolvedSpecOf(const core::JobRecord& job) {
  v1::JobSpec resolved = ResolvedSpecOf(*job.submission);
  if (job.precision != core::Precision::kNone) {
    resolved.mutable_train()->set_precision(
        ParseEnum<v1::Precision>("PRECISION_", core::Text(job.precision), &v1::Precision_Parse));
  }
  return job.array == JobId{} ? resolved : spec::ArrayElement(resolved, job.array_index());
}

std::string ModelKind(const v1::JobSpec& spec) {
  if (spec.has_program()) return "program";
  const v1::ModelSpec& model = spec.model();
  const auto* const kinds = v1::ModelSpec::descriptor()->FindOneofByName("model");
  const auto* const kind = model.GetReflection()->GetOneofFieldDescriptor(model, kinds);
  return kind == nullptr ? "" : kind->name();
}

v1::Explanation ToProto(const core::Explanation& explanation, core::Now now) {
  v1::Explanation proto;
  for (const std::string& reason : explanation.reasons) proto.add_reasons(reason);
  proto.set_infeasible(explanation.infeasible);
  proto.set_position(explanation.position);
  for (const auto& [path, value] : explanation.change) {
    v1::SpecChange* change = proto.add_change();
    change->set_path(path);
    change->set_value_json(value);
  }
  proto.set_change_text(explanation.change_text);
  if (explanation.start_in_us.has_value()) {
    *proto.mutable_start_in() = ToDuration(*explanation.start_in_us);
    *proto.mutable_start_time() = ToTimestamp(now.wall_us + *explanation.start_in_us);
  }
  proto.set_start_basis(explanation.start_basis);
  return proto;
}

v1::JobState ToProto(const core::JobState& state) {
  return ParseEnum<v1::JobState>("JOB_STATE_", core::job_fsm::Name(state), &v1::JobState_Parse);
}

v1::StopReason ToProto(core::StopReason reason) {
  return ParseEnum<v1::StopReason>("STOP_REASON_", core::Text(reason), &v1::StopReason_Parse);
}

v1::Job ToProto(const runtime::JobView& view) {
  const core::JobRecord& record = view.record;
  v1::Job job;
  job.set_name(JobName(record.id));
  const bool is_element = record.array != JobId{};
  job.set_uid(is_element ? ElementUid(record.submission->uid, record.array_index())
                         : record.submission->uid);
  *job.mutable_spec() = SpecOf(*record.submission);
  *job.mutable_resolved_spec() = ResolvedSpecOf(record);
  if (is_element) job.set_array(JobName(record.array));
  job.set_array_index(record.array_index());
  codec::SetOptions(*record.submission, job);
  job.set_preemptions(record.preemptions);
  if (record.device_time_us > 0) *job.mutable_device_time() = ToDuration(record.device_time_us);
  SetProvenance(record, *job.mutable_provenance());
  job.set_state(ToProto(record.state));
  job.set_stop_reason(ToProto(record.stop_reason));
  for (const std::string& reason : view.queue_reasons) job.add_queue_reasons(reason);
  job.set_attempt(record.attempt);
  SetProgress(record.progress, view.checkpoint_step, *job.mutable_progress());
  if (const auto failure = FailureOf(record.state)) *job.mutable_failure() = FailureProto(*failure);
  SetTimeUnlessZero(record.create_us, [&] { return job.mutable_create_time(); });
  SetTimeUnlessZero(record.start_us, [&] { return job.mutable_start_time(); });
  SetTimeUnlessZero(record.end_us, [&] { return job.mutable_end_time(); });
  if (const auto* queued = std::get_if<core::job_fsm::Queued>(&record.state)) {
    SetTimeUnlessZero(queued->not_before_us, [&] { return job.mutable_not_before(); });
  }
  job.set_etag(absl::StrCat(record.revision));
  job.set_retries(record.retries);
  if (view.attempt != nullptr) AddPlacement(view.attempt->ranks, job);
  for (const auto& [name, value] : record.metrics.values) {
    (*job.mutable_final_metrics())[name] = value;
  }
  *job.mutable_stored() = StoredBytesProto(view.checkpoint_bytes, view.streams);
  if (record.logs_deleted) job.add_deleted_parts(v1::JOB_PART_LOGS);
  if (record.metrics_deleted) job.add_deleted_parts(v1::JOB_PART_METRICS);
  return job;
}

v1::StoredBytes StoredBytesProto(int64_t checkpoints, const core::StreamBytes& streams) {
  v1::StoredBytes proto;
  proto.set_checkpoints(checkpoints);
  proto.set_logs(streams.logs);
  proto.set_metrics(streams.metrics);
  return proto;
}

v1::Attempt ToProto(const core::AttemptRecord& attempt) {
  v1::Attempt proto;
  proto.set_name(AttemptName(attempt.id));
  proto.set_state(ParseEnum<v1::AttemptState>(
      "ATTEMPT_STATE_", core::attempt_fsm::Name(attempt.state), &v1::AttemptState_Parse));
  AddPlacement(attempt.ranks, proto);
  if (const auto failure = FailureOf(attempt.state)) {
    *proto.mutable_failure() = FailureProto(*failure);
  }
  SetTimeUnlessZero(attempt.create_us, [&] { return proto.mutable_create_time(); });
  SetTimeUnlessZero(attempt.start_us, [&] { return proto.mutable_start_time(); });
  SetTimeUnlessZero(attempt.end_us, [&] { return proto.mutable_end_time(); });
  if (attempt.resume_from.has_value()) proto.set_resumed_from_step(attempt.resume_from->step);
  proto.set_isolation(
      ParseEnum<v1::Isolation>("ISOLATION_", core::Text(attempt.isolation), &v1::Isolation_Parse));
  return proto;
}

v1::Checkpoint ToProto(const core::CheckpointRecord& checkpoint) {
  v1::Checkpoint proto;
  proto.set_name(CheckpointName(checkpoint.id.job, checkpoint.id.step));
  proto.set_step(checkpoint.id.step);
  proto.set_attempt(checkpoint.attempt);
  for (const core::CheckpointFile& file : checkpoint.files) {
    auto* added = proto.add_files();
    added->set_name(file.name);
    added->set_size(file.size);
    added->set_hash(file.hash);
  }
  SetTimeUnlessZero(checkpoint.create_us, [&] { return proto.mutable_create_time(); });
  proto.set_damage(checkpoint.damage);
  proto.set_copy(checkpoint.copy);
  proto.set_copy_failure(checkpoint.copy_failure);
  return proto;
}

v1::Event ToProto(const core::EventRecord& event) {
  v1::Event proto;
  proto.set_sequence(event.sequence);
  proto.set_resource(event.resource);
  proto.set_type(event.type);
  proto.set_actor(event.actor);
  proto.set_message(PlainText(event.message, kFailureMessageBytesMax));
  *proto.mutable_time() = ToTimestamp(event.time_us);
  return proto;
}

v1::Worker ToProto(const core::WorkerRecord& worker, const core::Yard& yard) {
  v1::Worker proto;
  proto.set_name(WorkerName(worker.name));
  proto.set_state(ParseEnum<v1::WorkerState>("WORKER_STATE_", core::worker_fsm::Name(worker.state),
                                             &v1::WorkerState_Parse));
  proto.set_scheduling(ParseEnum<v1::WorkerScheduling>(
      "WORKER_SCHEDULING_", core::Text(worker.scheduling), &v1::WorkerScheduling_Parse));
  const std::map<std::string, AttemptId> holders = yard.HoldersOn(worker.name);
  const std::map<std::string, std::string> usage = yard.UsageOn(worker.name);
  for (const core::DeviceRecord& device : worker.devices) {
    v1::Device* added = proto.add_devices();
    added->set_name(device.name);
    added->set_type(device.type);
    added->set_memory_bytes(device.memory_bytes);
    added->set_health(ParseEnum<v1::DeviceHealth>("DEVICE_HEALTH_", core::Text(device.health),
                                                  &v1::DeviceHealth_Parse));
    const auto holder = holders.find(device.name);
    if (holder != holders.end()) added->set_attempt(AttemptName(holder->second));
    for (const int32_t cpu : device.cpus) added->add_cpus(cpu);
    added->set_threads(device.threads);
    added->set_product(device.product);
    added->set_health_reason(device.health_reason);
    added->set_island(device.island);
    added->set_quarantine(device.quarantine);
    added->set_bf16(device.bf16);
    const auto used = usage.find(device.name);
    if (used != usage.end()) *added->mutable_usage() = codec::DecodeUsage(used->second);
  }
  if (!worker.host.empty()) {
    const core::HostAmount held = yard.HeldOn(worker.name);
    v1::HostResources& host = *proto.mutable_host();
    host.set_cpus(worker.host.cpus);
    host.set_memory_bytes(worker.host.memory_bytes);
    host.set_cpus_held(held.cpus);
    host.set_memory_bytes_held(held.memory_bytes);
  }
  proto.mutable_labels()->insert(worker.labels.begin(), worker.labels.end());
  if (const core::WorkerDatasets* datasets = yard.DatasetsOn(worker.name); datasets != nullptr) {
    TY_CHECK(proto.mutable_datasets()->ParseFromString(datasets->report));
  }
  proto.set_version(worker.version);
  proto.set_hostname(worker.hostname);
  proto.set_address(worker.address);
  SetTimeUnlessZero(yard.LastSeen(worker.name), [&] { return proto.mutable_last_seen_time(); });
  SetTimeUnlessZero(worker.create_us, [&] { return proto.mutable_create_time(); });
  return proto;
}

v1::MetricPoint ToProto(const store::StoredPoint& stored) {
  v1::MetricPoint point;
  point.set_step(stored.point.step);
  point.set_name(stored.point.name);
  point.set_value(stored.point.value);
  *point.mutable_time() = ToTimestamp(stored.point.time_us);
  point.set_attempt(stored.attempt);
  return point;
}

v1::SpecDifference ToProto(const spec::FieldDifference& difference) {
  v1::SpecDifference proto;
  proto.set_path(difference.path);
  proto.set_left_json(difference.left_json);
  proto.set_right_json(difference.right_json);
  return proto;
}

}  // namespace trainyard::rpc
