// Reads what workers report. Nothing that they report is trusted, so all of it is checked.
#include "server/rpc/convert_agent.h"

#include <cmath>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/checkpoint_file.h"
#include "common/base/device_type.h"
#include "common/base/hash.h"
#include "common/base/labels.h"
#include "common/base/report_limits.h"
#include "common/base/strings.h"
#include "common/spec/data_checks.h"
#include "common/spec/interval.h"
#include "server/codec/progress.h"
#include "server/rpc/convert.h"
#include "server/rpc/limits.h"

namespace trainyard::rpc {
namespace {

// Finds the enumerator of the core that has the word of the API without its prefix.
template <typename Value>
Value ParseWord(const std::string& field, absl::string_view prefix, absl::string_view word,
                RequestCheck& check) {
  Value value{};
  absl::string_view text = word;
  const bool is_known = absl::ConsumePrefix(&text, prefix) && core::FromText(text, value).ok();
  if (!is_known) check.Add(field, absl::StrCat("'", word, "' is not accepted here"));
  return value;
}

bool IsWord(absl::string_view text, absl::string_view extra, size_t max_bytes) {
  if (text.empty() || text.size() > max_bytes) return false;
  for (const char c : text) {
    const bool is_alnum =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!is_alnum && extra.find(c) == absl::string_view::npos) return false;
  }
  return true;
}

core::DeviceRecord FromProto(const v1::Device& device, const std::string& field,
                             RequestCheck& check) {
  core::DeviceRecord record;
  if (!IsWord(device.name(), "-_.:", kNameBytesMax)) {
    check.Add(field + ".name", absl::StrCat("'", device.name().substr(0, 64),
                                            "' is not accepted; expected letters, digits, '-', "
                                            "'_', '.' and ':'"));
  }
  if (!IsDeviceType(device.type())) {
    check.Add(field + ".type", absl::StrCat("'", device.type().substr(0, 64),
                                            "' is no device type, such as cpu or h200"));
  }
  check.NotNegative(field + ".memory_bytes", device.memory_bytes());
  check.MaxBytes(field + ".product", device.product(), kNameBytesMax);
  check.MaxBytes(field + ".health_reason", device.health_reason(), kReasonBytesMax);
  check.MaxCount(field + ".cpus", device.cpus_size(), kDevicesMax);
  record.name = device.name();
  record.type = device.type();
  record.memory_bytes = device.memory_bytes();
  record.health =
      device.health() == v1::DEVICE_HEALTH_UNSPECIFIED
          ? core::DeviceHealth::kOk
          : ParseWord<core::DeviceHealth>(field + ".health", "DEVICE_HEALTH_",
                                          v1::DeviceHealth_Name(device.health()), check);
  record.health_reason = PlainText(device.health_reason(), kReasonBytesMax);
  record.cpus.assign(device.cpus().begin(), device.cpus().end());
  record.threads = device.threads();
  record.product = PlainText(device.product(), kNameBytesMax);
  check.NotNegative(field + ".island", device.island());
  record.island = device.island();
  record.bf16 = device.bf16();
  return record;
}

std::vector<core::DeviceRecord> DevicesFromProto(
    const google::protobuf::RepeatedPtrField<v1::Device>& devices, RequestCheck& check) {
  std::vector<core::DeviceRecord> records;
  std::set<std::string> names;
  check.MaxCount("devices", devices.size(), kDevicesMax);
  for (int i = 0; i < devices.size() && i < kDevicesMax; ++i) {
    const std::string field = absl::StrCat("devices[", i, "]");
    records.push_back(FromProto(devices[i], field, check));
    if (!names.insert(devices[i].name()).second) {
      check.Add(field + ".name", absl::StrCat("'", devices[i].name(), "' is there twice"));
    }
  }
  return records;
}

core::Outcome FromProto(const v1::AttemptOutcome& outcome, const std::string& field,
                        RequestCheck& check) {
  core::Outcome result;
  result.kind = ParseWord<core::OutcomeKind>(field + ".kind", "",
                                             v1::AttemptOutcome::Kind_Name(outcome.kind()), check);
  if (outcome.has_failure() && outcome.failure().failure_class() != v1::FAILURE_CLASS_UNSPECIFIED) {
    result.failure.failure_class = ParseWord<core::FailureClass>(
        field + ".failure.failure_class", "FAILURE_CLASS_",
        v1::FailureClass_Name(outcome.failure().failure_class()), check);
  } else if (outcome.kind() == v1::AttemptOutcome::FAILED) {
    check.Add(field + ".failure.failure_class", "must be given if ranks failed");
  }
  result.failure.reason = PlainText(outcome.failure().reason(), kFailureReasonBytesMax);
  result.failure.message = PlainText(outcome.failure().message(), kFailureMessageBytesMax);
  result.failure.exit_code = outcome.failure().exit_code();
  result.step = outcome.step();
  result.failed_rank = outcome.failed_rank();
  return result;
}

void CheckHosting(const v1::RankHosting& host, const std::string& field, RequestCheck& check) {
  const auto in_range = [&](const char* name, int32_t value, int32_t max) {
    if (value >= 0 && value <= max) return;
    check.Add(absl::StrCat(field, ".", name), absl::StrCat("is ", value, "; expected 0 to ", max));
  };
  in_range("rank", host.rank(), RanksMax() - 1);
  in_range("first_replica", host.first_replica(), ReplicasMax() - 1);
  in_range("replicas", host.replicas(), ReplicasMax());
  in_range("stage", host.stage(), StagesMax() - 1);
  if (!(host.samples_per_s() >= 0 && std::isfinite(host.samples_per_s()))) {
    check.Add(field + ".samples_per_s",
              absl::StrCat("is ", host.samples_per_s(), "; expected a speed, or 0"));
  }
}

}  // namespace

core::Progress FromProto(const v1::Progress& progress, const std::string& field,
                         RequestCheck& check) {
  if (!progress.hosting().empty()) {
    check.MaxCount(field + ".hosting", progress.hosting_size(), RanksMax());
    check.MaxBytes(field + ".hosting_reason", progress.hosting_reason(), kReasonBytesMax);
  }
  if (progress.fallbacks() < 0) {
    check.Add(field + ".fallbacks",
              absl::StrCat("is ", progress.fallbacks(), "; expected 0 or more"));
  }
  check.MaxBytes(field + ".first_fallback", progress.first_fallback(), kReasonBytesMax);
  check.MaxBytes(field + ".disk_full", progress.disk_full(), kReasonBytesMax);
  for (int i = 0; i < progress.hosting_size() && i < RanksMax(); ++i) {
    CheckHosting(progress.hosting(i), absl::StrCat(field, ".hosting[", i, "]"), check);
  }
  return codec::EncodeProgress(progress);
}

namespace {

core::ObservedAttempt FromProto(const v1::ObservedAttempt& observed, const std::string& field,
                                RequestCheck& check) {
  core::ObservedAttempt result;
  result.attempt = check.Attempt(field + ".attempt", observed.attempt());
  result.fencing_token = observed.fencing_token();
  result.state = ParseWord<core::ObservedState>(field + ".state", "OBSERVED_STATE_",
                                                v1::ObservedState_Name(observed.state()), check);
  result.isolation = ParseWord<core::Isolation>(field + ".isolation", "ISOLATION_",
                                                v1::Isolation_Name(observed.isolation()), check);
  if (observed.has_progress()) {
    result.progress = FromProto(observed.progress(), field + ".progress", check);
  }
  if (observed.state() == v1::OBSERVED_STATE_EXITED) {
    result.outcome = FromProto(observed.outcome(), field + ".outcome", check);
  }
  check.MaxCount(field + ".rendezvous", static_cast<int>(observed.rendezvous().size()),
                 kRendezvousKeysMax);
  for (const auto& [key, value] : observed.rendezvous()) {
    if (!IsWord(key, "_.-", kNameBytesMax)) {
      check.Add(field + ".rendezvous", absl::StrCat("key '", key.substr(0, 64),
                                                    "' is not accepted; expected letters, "
                                                    "digits, '_', '.' and '-'"));
    }
    check.MaxBytes(field + ".rendezvous", value, kRendezvousValueBytesMax);
    result.rendezvous[key] = value;
  }
  check.MaxBytes(field + ".data_digest", observed.data_digest(), kNameBytesMax);
  check.MaxBytes(field + ".model_digest", observed.model_digest(), kNameBytesMax);
  result.data_digest = observed.data_digest();
  result.model_digest = observed.model_digest();
  result.drained = observed.drained();
  for (const auto& [name, value] : observed.metrics()) {
    if (result.metrics.values.size() == kLastMetricsMax) break;
    if (name.size() <= kMetricNameBytesMax) result.metrics.values[name] = value;
  }
  return result;
}

v1::DesiredAttempt DesiredProto(const core::DesiredAttempt& desired, const runtime::Board& board) {
  v1::DesiredAttempt proto;
  proto.set_attempt(AttemptName(desired.attempt));
  proto.set_fencing_token(desired.fencing_token);
  switch (desired.action) {
    case core::DesiredAction::kRun:
      proto.set_action(v1::DesiredAttempt::RUN);
      break;
    case core::DesiredAction::kStop:
      proto.set_action(v1::DesiredAttempt::STOP);
      proto.mutable_stop()->set_reason(ToProto(desired.stop_reason));
      *proto.mutable_stop()->mutable_grace() = ToDuration(desired.stop_grace_us);
      return proto;
    case core::DesiredAction::kRemove:
      proto.set_action(v1::DesiredAttempt::REMOVE);
      return proto;
  }
  if (const auto job = board.FindJob(desired.attempt.job)) {
    *proto.mutable_spec() = ResolvedSpecOf(job->record);
    proto.set_owner(job->record.submission->user);
  }
  proto.set_world_size(desired.world_size);
  for (const core::RankPlacement& rank : desired.ranks) {
    v1::DesiredRank* added = proto.add_ranks();
    added->set_rank(rank.rank);
    added->set_device(rank.device);
    added->set_cpus(rank.held.cpus);
    added->set_memory_bytes(rank.held.memory_bytes);
  }
  if (desired.resume_from.has_value()) {
    if (const auto checkpoint = board.FindCheckpoint(*desired.resume_from)) {
      *proto.mutable_resume_from() = ToProto(*checkpoint);
    }
  }
  if (desired.init_from.has_value()) {
    if (const auto checkpoint = board.FindCheckpoint(*desired.init_from)) {
      *proto.mutable_init_from() = ToProto(*checkpoint);
    }
  }
  for (const auto& [key, value] : desired.rendezvous) (*proto.mutable_rendezvous())[key] = value;
  proto.set_spans_workers(desired.spans_workers);
  proto.set_checkpoint_request(desired.checkpoint_request);
  proto.set_failures(desired.failures);
  *proto.mutable_run_time() = ToDuration(desired.run_time_us);
  return proto;
}

}  // namespace

core::RegisterWorker FromProto(const v1::RegisterWorkerRequest& request, RequestCheck& check) {
  bool has_form = !request.worker().empty() && request.worker().size() <= 63;
  for (const char c : request.worker()) {
    has_form = has_form && ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-');
  }
  if (!has_form) {
    check.Add("worker", absl::StrCat("'", request.worker().substr(0, 64),
                                     "' is no name of a worker; expected 1 to 63 lower-case "
                                     "letters, digits and '-'"));
  }
  check.NotEmpty("uid", request.uid());
  check.MaxBytes("uid", request.uid(), kNameBytesMax);
  check.MaxBytes("version", request.version(), kNameBytesMax);
  check.MaxBytes("hostname", request.hostname(), kNameBytesMax);
  check.MaxBytes("address", request.address(), kNameBytesMax);
  core::RegisterWorker input;
  input.worker = request.worker();
  input.uid = request.uid();
  input.version = PlainText(request.version(), kNameBytesMax);
  input.hostname = PlainText(request.hostname(), kNameBytesMax);
  input.address = PlainText(request.address(), kNameBytesMax);
  input.devices = DevicesFromProto(request.devices(), check);
  check.MaxCount("labels", static_cast<int>(request.labels().size()), static_cast<int>(kLabelsMax));
  for (const auto& [key, value] : request.labels()) {
    const absl::Status label = CheckLabel(key, value);
    if (!label.ok()) check.Add("labels", label.message());
    input.labels[key] = value;
  }
  check.NotNegative("host.cpus", request.host().cpus());
  check.NotNegative("host.memory_bytes", request.host().memory_bytes());
  // A host is divided if the number of its processors is known.
  if (request.host().cpus() > 0) {
    input.host = {request.host().cpus(), request.host().memory_bytes()};
  }
  check.MaxBytes("run_as_user", request.run_as_user(), kUserBytesMax);
  input.run_as_user = PlainText(request.run_as_user(), kUserBytesMax);
  return input;
}

namespace {

// A data set can be used if it has both splits, and nothing is wrong with either.
std::shared_ptr<const core::WorkerDatasets> FromProto(const v1::DatasetList& list,
                                                      RequestCheck& check) {
  check.MaxCount("datasets.splits", list.splits_size(), kSplitsMax);
  auto datasets = std::make_shared<core::WorkerDatasets>();
  v1::DatasetList shown;
  std::set<std::string> tested;
  std::set<std::string> damaged;
  for (int i = 0; i < list.splits_size() && i < kSplitsMax; ++i) {
    const v1::DatasetSplit& split = list.splits(i);
    check.MaxBytes(absl::StrCat("datasets.splits[", i, "].path"), split.path(), kPathBytesMax);
    v1::DatasetSplit& safe = *shown.add_splits();
    safe = split;
    safe.set_dataset(PlainText(split.dataset(), kNameBytesMax));
    safe.set_path(PlainText(split.path(), kPathBytesMax));
    safe.set_split(PlainText(split.split(), kNameBytesMax));
    safe.set_shape(PlainText(split.shape(), kNameBytesMax));
    safe.set_digest(PlainText(split.digest(), kNameBytesMax));
    safe.set_error(PlainText(split.error(), kReasonBytesMax));
    const std::string key = spec::DatasetKey(safe.dataset(), safe.path());
    if (!safe.error().empty()) damaged.insert(key);
    if (safe.split() == "train") datasets->digests[key] = safe.digest();
    if (safe.split() == "test") tested.insert(key);
  }
  std::erase_if(datasets->digests, [&](const auto& dataset) {
    return tested.count(dataset.first) == 0 || damaged.count(dataset.first) > 0;
  });
  datasets->report = shown.SerializeAsString();
  return datasets;
}

}  // namespace

core::SyncReport FromProto(const v1::SyncWorkerRequest& request, RequestCheck& check) {
  core::SyncReport report;
  check.NotEmpty("session", request.session());
  check.NotNegative("sequence", request.sequence());
  check.NotNegative("desired_revision", request.desired_revision());
  check.NotNegative("answers_heard", request.answers_heard());
  check.MaxCount("attempts", request.attempts_size(), kAttemptsMax);
  report.session = request.session();
  report.sequence = request.sequence();
  report.desired_revision = request.desired_revision();
  if (request.has_answers_heard()) report.answers_heard = request.answers_heard();
  for (int i = 0; i < request.attempts_size() && i < kAttemptsMax; ++i) {
    report.attempts.push_back(
        FromProto(request.attempts(i), absl::StrCat("attempts[", i, "]"), check));
  }
  if (request.has_datasets()) report.datasets = FromProto(request.datasets(), check);
  check.MaxCount("refused_users", request.refused_users_size(), kRefusedUsersMax);
  for (int i = 0; i < request.refused_users_size() && i < kRefusedUsersMax; ++i) {
    const v1::RefusedUser& refused = request.refused_users(i);
    const std::string field = absl::StrCat("refused_users[", i, "]");
    check.NotEmpty(field + ".user", refused.user());
    check.MaxBytes(field + ".user", refused.user(), kUserBytesMax);
    check.MaxBytes(field + ".reason", refused.reason(), kReasonBytesMax);
    report.refused_users[PlainText(refused.user(), kUserBytesMax)] =
        PlainText(refused.reason(), kReasonBytesMax);
  }
  if (request.has_leave_within()) {
    report.leave_within_us = absl::ToInt64Microseconds(spec::FromProto(request.leave_within()));
    if (report.leave_within_us <= 0 || report.leave_within_us > kDrainWithinMaxUs) {
      check.Add("leave_within", "must be more than 0s and at most 24 h");
    }
  }
  report.devices = DevicesFromProto(request.devices(), check);
  for (int i = 0; i < request.devices_size() && i < kDevicesMax; ++i) {
    const v1::Device& device = request.devices(i);
    if (!device.has_usage()) continue;
    check.MaxBytes(absl::StrCat("devices[", i, "].usage.slowed_by"), device.usage().slowed_by(),
                   kReasonBytesMax);
    report.usage[device.name()] = device.usage().SerializeAsString();
  }
  return report;
}

core::CheckpointFile FromProto(const v1::CheckpointFile& file, const std::string& field,
                               RequestCheck& check) {
  // A trainer could not read a checkpoint with a hidden file, or with a second manifest.
  if (!IsCheckpointFileName(file.name())) {
    check.Add(
        field + ".name",
        absl::StrCat("'", PlainText(file.name(), 64),
                     "' is no name of a checkpoint's file; expected at most ", kFileNameBytesMax,
                     " bytes without control characters, of which no folder or file begins "
                     "with '.', and not MANIFEST"));
  }
  check.NotNegative(field + ".size", file.size());
  const auto digits = HashDigits(file.hash());
  if (!digits.ok()) check.Add(field + ".hash", digits.status().message());
  return {file.name(), file.size(), file.hash()};
}

v1::SyncWorkerResponse ToProto(const runtime::DesiredState& desired, const runtime::Board& board) {
  v1::SyncWorkerResponse response;
  response.set_desired_revision(desired.revision);
  for (const core::DesiredAttempt& attempt : desired.attempts) {
    *response.add_attempts() = DesiredProto(attempt, board);
  }
  return response;
}

}  // namespace trainyard::rpc
