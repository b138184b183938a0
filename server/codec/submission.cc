// Reads submissions from their specs and options. A spec that an older server resolved lacks the
// fields that were added later. Each such field then has the meaning that the behaviour had before
// it existed.
#include "server/codec/submission.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/hash.h"
#include "common/base/ids.h"
#include "common/base/isolation.h"
#include "common/base/status_macros.h"
#include "common/spec/data_checks.h"
#include "common/spec/interval.h"
#include "common/spec/retain.h"
#include "server/codec/time.h"

namespace trainyard::codec {
namespace {

int64_t Microseconds(const google::protobuf::Duration& duration) {
  return absl::ToInt64Microseconds(spec::FromProto(duration));
}

core::Demand DemandOf(const v1::JobSpec& resolved) {
  const v1::DevicesSpec& devices = resolved.devices();
  core::Demand demand;
  // A rank without a device is a gang of one.
  demand.is_deviceless = devices.has_count() && devices.count() == 0 && devices.min() == 0;
  demand.count = demand.is_deviceless ? 1 : devices.count();
  demand.resources = {resolved.resources().cpus(), resolved.resources().memory().bytes()};
  demand.type = devices.type();
  demand.mixed = devices.mixed();
  demand.min_count = devices.min();
  demand.memory_bytes = devices.memory().bytes();
  demand.labels.insert(devices.labels().begin(), devices.labels().end());
  demand.spread = devices.spread();
  return demand;
}

// Returns the labels that a worker has if it can give the isolation that the program asks for.
std::vector<const char*> IsolationLabels(const v1::ProgramSpec& program) {
  if (!program.environment().container().empty()) return {kContainerLabel};
  switch (program.isolation()) {
    case v1::ISOLATION_CGROUP:
      return {kCgroupLabel};
    case v1::ISOLATION_SANDBOX:
      return {kSandboxLabel};
    default:
      return {};
  }
}

// Such a network is judged by its loss, which says more about it than the accuracy.
bool PredictsTokens(const v1::ModelSpec& model) {
  return model.has_gpt2() || (model.has_layers() && model.layers().vocabulary() > 0);
}

// The name is exact in a resolved spec.
std::optional<core::CheckpointRef> InitCheckpointOf(const v1::InitSpec& init) {
  const auto id = ParseCheckpointName(init.job());
  if (!id.ok()) return std::nullopt;
  return core::CheckpointRef{id->job, id->step};
}

// Jobs of the same key differ only in what changes the time of a step little or not at all.
core::Work WorkOf(const v1::JobSpec& resolved) {
  v1::JobSpec same;
  *same.mutable_model() = resolved.model();
  *same.mutable_data() = resolved.data();
  same.mutable_data()->clear_digest();
  *same.mutable_train() = resolved.train();
  same.mutable_train()->clear_seed();
  core::Work work;
  work.length = resolved.train().has_steps() ? resolved.train().steps() : resolved.train().epochs();
  if (resolved.train().has_steps()) {
    same.mutable_train()->set_steps(1);
  } else {
    same.mutable_train()->set_epochs(1);
  }
  *same.mutable_memory() = resolved.memory();
  *same.mutable_stages() = resolved.stages();
  work.key = ContentHash(absl::StrCat(static_cast<int>(resolved.optimizer().rule_case()), "\n",
                                      same.SerializeAsString()));
  return work;
}

absl::Status TakeOptions(const v1::Job& options, core::Submission& submission) {
  submission.user = options.user();
  const v1::Provenance& provenance = options.provenance();
  submission.server_version = provenance.server_version();
  if (!provenance.cloned_from().empty()) {
    TY_ASSIGN_OR_RETURN(submission.cloned_from, ParseJobName(provenance.cloned_from()));
  }
  if (!provenance.verifies().empty()) {
    TY_ASSIGN_OR_RETURN(submission.verifies, ParseJobName(provenance.verifies()));
    submission.verify_tolerance = provenance.tolerance();
  }
  if (!provenance.parent_checkpoint().empty()) {
    TY_ASSIGN_OR_RETURN(const CheckpointId parent,
                        ParseCheckpointName(provenance.parent_checkpoint()));
    submission.parent_checkpoint = core::CheckpointRef{parent.job, parent.step};
  }
  TakeCodeOrigin(provenance.code(), submission);
  if (provenance.has_imported()) {
    submission.import_origin = provenance.imported().SerializeAsString();
  }
  submission.saved_spec = provenance.saved_spec();
  submission.trial = provenance.trial();
  for (const v1::Dependency& dependency : options.dependencies()) {
    TY_ASSIGN_OR_RETURN(const JobId job, ParseJobName(dependency.job()));
    submission.dependencies.push_back({job, dependency.ok()});
  }
  if (options.has_begin_time()) submission.not_before_us = FromTimestamp(options.begin_time());
  submission.reservation = options.reservation();
  submission.wait_for_devices = options.wait_for_devices();
  submission.demand.host_need_bytes = options.memory_need().host_bytes();
  submission.demand.gpu_need_bytes = options.memory_need().gpu_bytes();
  submission.array_size = options.array_size();
  submission.array_parallel = options.array_parallel();
  return absl::OkStatus();
}

bool IsPrintable(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), absl::ascii_isprint);
}

}  // namespace

void TakeCodeOrigin(const v1::CodeOrigin& origin, core::Submission& submission) {
  submission.code_diff_digest = origin.diff_digest();
  submission.code_origin = origin.SerializeAsString();
}

void TakeSpec(const v1::JobSpec& resolved, core::Submission& submission) {
  submission.code_digest = resolved.program().code();
  submission.name = resolved.name();
  submission.project = resolved.project();
  submission.tags.assign(resolved.tags().begin(), resolved.tags().end());
  submission.demand = DemandOf(resolved);
  // Only a worker that can keep it apart as strictly gets the job.
  for (const char* label : IsolationLabels(resolved.program())) {
    submission.demand.labels[label] = kIsolationYes;
  }
  submission.demand.multiple_of = std::max(1, resolved.stages().count());
  submission.demand.one_host = resolved.program().ranks() == v1::PROGRAM_RANKS_ONE;
  submission.work = WorkOf(resolved);
  submission.demand.dataset = spec::DatasetKey(resolved.data());
  if (!submission.demand.dataset.empty()) {
    submission.demand.data_digest = resolved.data().digest();
  }
  submission.demand.bf16 = resolved.train().precision() == v1::PRECISION_BF16;
  submission.auto_precision = resolved.train().precision() == v1::PRECISION_AUTO;
  submission.priority = resolved.priority();
  submission.preemptible = !resolved.has_preemptible() || resolved.preemptible();
  submission.max_retries = resolved.max_retries();
  submission.time_limit_us = Microseconds(resolved.time_limit());
  submission.time_limit_warning_us = Microseconds(resolved.time_limit_warning());
  if (const auto retain = spec::ParseRetain(resolved.retain()); retain.ok()) {
    submission.retain_us =
        *retain == absl::InfiniteDuration() ? core::kForever : absl::ToInt64Microseconds(*retain);
  }
  submission.disconnect_keep_us = Microseconds(resolved.on_disconnect().keep());
  submission.checkpoints_kept = resolved.checkpoint().keep().last();
  submission.keeps_best = resolved.checkpoint().keep().best();
  submission.judged_by_loss = PredictsTokens(resolved.model());
  submission.init_checkpoint = InitCheckpointOf(resolved.init());
}

void SetOptions(const core::Submission& submission, v1::Job& job) {
  job.set_user(submission.user);
  v1::Provenance& provenance = *job.mutable_provenance();
  provenance.set_server_version(submission.server_version);
  if (submission.cloned_from != JobId{}) {
    provenance.set_cloned_from(JobName(submission.cloned_from));
  }
  if (submission.verifies != JobId{}) {
    provenance.set_verifies(JobName(submission.verifies));
    provenance.set_tolerance(submission.verify_tolerance);
  }
  if (const auto& parent = submission.parent_checkpoint) {
    provenance.set_parent_checkpoint(CheckpointName(parent->job, parent->step));
  }
  if (!submission.code_origin.empty()) {
    (void)provenance.mutable_code()->ParseFromString(submission.code_origin);
  }
  if (submission.is_imported()) {
    (void)provenance.mutable_imported()->ParseFromString(submission.import_origin);
  }
  provenance.set_saved_spec(submission.saved_spec);
  provenance.set_trial(submission.trial);
  for (const core::Dependency& dependency : submission.dependencies) {
    v1::Dependency* added = job.add_dependencies();
    added->set_job(JobName(dependency.job));
    added->set_ok(dependency.ok);
  }
  if (submission.not_before_us != 0) {
    *job.mutable_begin_time() = ToTimestamp(submission.not_before_us);
  }
  job.set_reservation(submission.reservation);
  job.set_wait_for_devices(submission.wait_for_devices);
  const core::Demand& demand = submission.demand;
  if (demand.host_need_bytes > 0 || demand.gpu_need_bytes > 0) {
    job.mutable_memory_need()->set_host_bytes(demand.host_need_bytes);
    job.mutable_memory_need()->set_gpu_bytes(demand.gpu_need_bytes);
  }
  job.set_array_size(submission.array_size);
  job.set_array_parallel(submission.array_parallel);
}

std::string EncodeOptions(const core::Submission& submission) {
  v1::Job options;
  SetOptions(submission, options);
  return options.SerializeAsString();
}

core::Submission DamagedSubmission(std::string uid) {
  v1::JobSpec spec;
  spec.set_name("damaged");
  spec.set_description("The store has lost the spec of this job.");
  spec.mutable_devices()->set_count(1);
  spec.mutable_devices()->set_type("none (the spec of this job is damaged)");
  spec.set_preemptible(false);
  core::Submission submission;
  TakeSpec(spec, submission);
  // No message that shows the job may hold what is no text.
  submission.uid = IsPrintable(uid) ? std::move(uid) : "damaged";
  submission.spec = submission.resolved_spec = spec.SerializeAsString();
  return submission;
}

absl::StatusOr<core::Submission> DecodeSubmission(std::string uid, std::string spec,
                                                  std::string resolved_spec,
                                                  absl::string_view options) {
  if (!IsPrintable(uid)) return absl::DataLossError("the uid of a submission is no text");
  core::Submission submission;
  v1::JobSpec resolved;
  if (!resolved.ParseFromString(resolved_spec)) return absl::DataLossError("no resolved spec");
  TakeSpec(resolved, submission);
  v1::Job given;
  if (!given.ParseFromArray(options.data(), static_cast<int>(options.size()))) {
    return absl::DataLossError("no options of a submission");
  }
  TY_RETURN_IF_ERROR(TakeOptions(given, submission));
  submission.uid = std::move(uid);
  submission.spec = std::move(spec);
  submission.resolved_spec = std::move(resolved_spec);
  return submission;
}

}  // namespace trainyard::codec
