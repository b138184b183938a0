// Looks names of checkpoints up on the board, and compares the new job with the one that wrote the
// checkpoint.
#include "server/rpc/start_point.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/errors.h"
#include "common/base/ids.h"
#include "common/base/status_macros.h"
#include "common/spec/diff.h"
#include "common/spec/resolve.h"
#include "google/protobuf/util/message_differencer.h"
#include "server/rpc/convert.h"
#include "server/rpc/gate.h"

namespace trainyard::rpc {
namespace {

using CheckpointView = std::shared_ptr<const core::CheckpointRecord>;

// The file of a checkpoint that holds the weights. It stands in docs/run_directory.md.
constexpr char kWeightsFile[] = "model.safetensors";

// Finds "12/600", "12/best", "12/last", "12" and "jobs/12/checkpoints/600". The rules of the spec
// have checked the form.
absl::StatusOr<CheckpointView> FindCheckpoint(const std::string& text, const access::Caller& caller,
                                              const Services& services) {
  const runtime::Board& board = services.board;
  absl::string_view rest = absl::StripPrefix(text, "jobs/");
  const size_t slash = rest.find('/');
  JobId id;
  if (!absl::SimpleAtoi(rest.substr(0, slash), &id.value)) return error::CheckpointNotFound(text);
  rest = slash == absl::string_view::npos ? "last" : rest.substr(slash + 1);
  absl::ConsumePrefix(&rest, "checkpoints/");
  // Checkpoints that a deleted job left behind exist only for jobs that were promised them.
  const auto job = board.FindJob(id);
  if (job == nullptr || !MaySee(caller, services, job->record)) {
    return error::JobNotFound(JobName(id));
  }
  int64_t step = 0;
  if (absl::SimpleAtoi(rest, &step)) {
    CheckpointView found = board.FindCheckpoint({id, step});
    if (found == nullptr) return error::CheckpointNotFound(CheckpointName(id, step));
    return found;
  }
  const std::vector<CheckpointView> all = board.CheckpointsOf(id);
  const auto* best = core::BestCheckpoint(*job->record.submission, all);
  for (auto it = all.rbegin(); it != all.rend(); ++it) {
    const bool is_it = rest == "best" ? it->get() == best : (*it)->is_whole();
    if (is_it) return *it;
  }
  return MakeError(absl::StatusCode::kNotFound, "NOT_FOUND",
                   absl::StrCat("'", text, "': job '", JobName(id), "' has no whole checkpoint",
                                rest == "best" ? " that was evaluated" : ""));
}

// Weights fit only the model for which they were trained, so every field that differs is named.
void CheckModel(const CheckpointView& parent, const v1::JobSpec& trained,
                const v1::JobSpec& resolved, RequestCheck& check) {
  for (const auto& difference : spec::DiffSpecs(trained.model(), resolved.model())) {
    const auto shown = [](const std::string& json) { return json.empty() ? "unset" : json; };
    check.Add(absl::StrCat("spec.model.", difference.path),
              absl::StrCat("is ", shown(difference.right_json), ", but checkpoint '",
                           CheckpointName(parent->id.job, parent->id.step), "' has ",
                           shown(difference.left_json)));
  }
}

// Returns the number of updates in an epoch of the new job, or 0 if nobody can tell before the data
// are read. If it trains on the data of the earlier job in the same batches, that one has counted.
int64_t StepsPerEpoch(const v1::JobSpec& resolved, const v1::JobSpec& trained,
                      const core::Progress& progress) {
  if (const int64_t steps = spec::StepsPerEpoch(resolved); steps > 0) return steps;
  v1::DataSpec before = trained.data();
  before.set_digest(resolved.data().digest());
  v1::Progress counted;
  const bool is_alike =
      google::protobuf::util::MessageDifferencer::Equals(before, resolved.data()) &&
      trained.train().global_batch() == resolved.train().global_batch() &&
      progress.report != nullptr && counted.ParseFromString(*progress.report);
  return is_alike && counted.epochs() > 0 ? counted.total_steps() / counted.epochs() : 0;
}

// A training that is over before its first step would look like a success.
void CheckLength(const CheckpointView& parent, const v1::JobSpec& trained,
                 const core::Progress& progress, const v1::JobSpec& resolved, RequestCheck& check) {
  const v1::TrainSpec& train = resolved.train();
  const int64_t per_epoch = StepsPerEpoch(resolved, trained, progress);
  const int64_t total = train.has_steps() ? train.steps() : train.epochs() * per_epoch;
  const int64_t step = parent->id.step;
  if (total <= 0 || step < total) return;
  const std::string name = CheckpointName(parent->id.job, step);
  const std::string instead =
      absl::StrCat(": nothing is left to train; did you mean init: {job: ", parent->id.job.value,
                   "/", step, "}, which begins a new training with its weights?");
  if (train.has_steps()) {
    check.Add("spec.train.steps", absl::StrCat("is ", train.steps(), ", and checkpoint '", name,
                                               "' is at step ", step, instead));
  } else {
    check.Add("spec.train.epochs",
              absl::StrCat("is ", train.epochs(), ", and checkpoint '", name, "' is at epoch ",
                           step / per_epoch, " (step ", step, " of ", total, ")", instead));
  }
}

absl::Status TakeContinued(const std::string& from_checkpoint, const access::Caller& caller,
                           const Services& services, v1::JobSpec& resolved, RequestCheck& check,
                           StartPoint& start) {
  if (!from_checkpoint.empty()) {
    const CheckpointId id = check.Checkpoint("from_checkpoint", from_checkpoint);
    if (!check.ok()) return absl::OkStatus();
    resolved.set_from_checkpoint(CheckpointName(id.job, id.step));
  }
  if (resolved.from_checkpoint().empty()) return absl::OkStatus();
  TY_ASSIGN_OR_RETURN(const CheckpointView parent,
                      FindCheckpoint(resolved.from_checkpoint(), caller, services));
  resolved.set_from_checkpoint(CheckpointName(parent->id.job, parent->id.step));
  start.continues = parent->id;
  const auto job = services.board.FindJob(parent->id.job);
  if (job == nullptr) return error::CheckpointNotFound(resolved.from_checkpoint());
  const v1::JobSpec trained = ResolvedSpecOf(job->record);
  if (resolved.has_program() || trained.has_program()) {
    // Only a program knows what its checkpoints hold, and whether it can continue with one.
    if (resolved.has_program() != trained.has_program()) {
      check.Add("from_checkpoint",
                absl::StrCat("is a checkpoint of ", trained.has_program() ? "a program" : "a model",
                             ", with which ", resolved.has_program() ? "a program" : "a model",
                             " cannot continue"));
    }
    return absl::OkStatus();
  }
  CheckModel(parent, trained, resolved, check);
  CheckLength(parent, trained, job->record.progress, resolved, check);
  return absl::OkStatus();
}

absl::Status TakeWeights(const access::Caller& caller, const Services& services,
                         v1::JobSpec& resolved, RequestCheck& check, StartPoint& start) {
  if (resolved.init().job().empty()) return absl::OkStatus();
  v1::InitSpec& init = *resolved.mutable_init();
  TY_ASSIGN_OR_RETURN(const CheckpointView parent, FindCheckpoint(init.job(), caller, services));
  init.set_job(CheckpointName(parent->id.job, parent->id.step));
  start.weights = parent->id;
  for (const core::CheckpointFile& file : parent->files) {
    if (file.name != kWeightsFile) continue;
    if (!init.digest().empty() && init.digest() != file.hash) {
      check.Add(
          "spec.init.digest",
          absl::StrCat("is '", init.digest(), "', but the weights of checkpoint '", init.job(),
                       "' are '", file.hash, "'; leave it out, or choose another", " checkpoint"));
    }
    init.set_digest(file.hash);
    return absl::OkStatus();
  }
  check.Add("spec.init.job",
            absl::StrCat("checkpoint '", init.job(), "' has no file ", kWeightsFile));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StartPoint> TakeStartPoint(const std::string& from_checkpoint,
                                          const access::Caller& caller, const Services& services,
                                          v1::JobSpec& resolved, RequestCheck& check) {
  StartPoint start;
  if (!from_checkpoint.empty() && resolved.has_init()) {
    check.Add("spec.init",
              "cannot stand beside from_checkpoint, which continues with the weights of the "
              "checkpoint; leave one of them out");
    return start;
  }
  TY_RETURN_IF_ERROR(TakeContinued(from_checkpoint, caller, services, resolved, check, start));
  TY_RETURN_IF_ERROR(TakeWeights(caller, services, resolved, check, start));
  return start;
}

}  // namespace trainyard::rpc
