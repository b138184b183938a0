// Plans instead of trying: the backend also plans other batches and options, so that the message
// about a step that does not fit can say what would.
#include "worker/trainer/plan/memory.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/errors.h"
#include "common/base/memory_limit.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/spec/fields.h"
#include "worker/engine/make_backend.h"
#include "worker/parallel/replicas.h"

namespace trainyard::trainer {
namespace {

// Planning a large network takes a second. After this many plans the search is within a row or two.
constexpr int kPlansMax = 12;
// While a checkpoint is written there are a copy of the state, its tensors by name, and the bytes
// of the files.
constexpr int64_t kCheckpointCopies = 3;

int64_t DevicesMax() {
  return static_cast<int64_t>(
      spec::RulesOf<v1::DevicesSpec>(v1::DevicesSpec::kCountFieldNumber).max());
}
int64_t ReplicasMax() {
  return static_cast<int64_t>(
      spec::RulesOf<v1::TrainSpec>(v1::TrainSpec::kReplicasFieldNumber).max());
}

int64_t BatchBytes(const engine::Graph& graph, int64_t rows) {
  return rows * (engine::ElementCount(graph.input_shape()) * int64_t{sizeof(float)} +
                 graph.labels_per_row() * int64_t{sizeof(int32_t)});
}

using BytesOf = std::function<absl::StatusOr<int64_t>(int64_t size)>;

// Returns the largest size in [min, max) that fits, or 0 if none does. Memory grows nearly in
// proportion to the size, so that a straight line soon leads there.
int64_t LargestThatFits(int64_t min, int64_t max, int64_t bytes_of_max, int64_t limit,
                        const BytesOf& bytes_of) {
  const absl::StatusOr<int64_t> least = min < max ? bytes_of(min) : 0;
  if (min >= max || !least.ok() || *least > limit) return 0;
  int64_t fits = min;
  int64_t bytes_of_fits = *least;
  for (int plans = 0; max - fits > 1 && plans < kPlansMax; ++plans) {
    const double share = static_cast<double>(limit - bytes_of_fits) /
                         static_cast<double>(std::max<int64_t>(1, bytes_of_max - bytes_of_fits));
    const auto guess = fits + static_cast<int64_t>(share * static_cast<double>(max - fits));
    // Every third guess is the middle, in case the line misleads.
    const int64_t size =
        plans % 3 == 2 ? fits + (max - fits) / 2 : std::clamp(guess, fits + 1, max - 1);
    const absl::StatusOr<int64_t> bytes = bytes_of(size);
    if (bytes.ok() && *bytes <= limit) {
      fits = size;
      bytes_of_fits = *bytes;
    } else {
      max = size;
      bytes_of_max = bytes.value_or(bytes_of_max);
    }
  }
  return fits;
}

absl::StatusOr<int64_t> Bytes(const v1::JobSpec& spec, const CompileTarget& target) {
  TY_ASSIGN_OR_RETURN(const engine::CompilePlan plan, PlanRank(spec, target));
  return plan.memory.total();
}

// Finds ways to make one batch fit, each by itself.
class Advice {
 public:
  Advice(const v1::JobSpec& spec, const CompileTarget& target, int64_t bytes, int64_t limit)
      : spec_(spec), target_(target), bytes_(bytes), limit_(limit) {}

  // `batch_that_fits` is the largest global batch that fits, or 0.
  absl::StatusOr<std::vector<std::string>> Give(int64_t batch_that_fits) {
    TY_ASSIGN_OR_RETURN(const PreparedModel model, PrepareModel(spec_, target_));
    if (!spec_.memory().recompute()) {
      v1::JobSpec changed = spec_;
      changed.mutable_memory()->set_recompute(true);
      Offer(changed, target_, "memory.recompute: true");
    }
    if (batch_that_fits == 0) return std::move(advice_);
    if (model.couples_rows) {
      OfferReplicas(batch_that_fits);
    } else {
      OfferMicrobatch(model.options.max_rows);
      OfferDevices(batch_that_fits);
    }
    return std::move(advice_);
  }

 private:
  // Offers the change if the batch then fits. Returns true if it does.
  bool Offer(const v1::JobSpec& changed, const CompileTarget& target, const std::string& what) {
    const absl::StatusOr<int64_t> bytes = Bytes(changed, target);
    if (!bytes.ok() || *bytes > limit_) return false;
    advice_.push_back(absl::StrCat(what, " (needs ", FormatBytes(*bytes), ")"));
    return true;
  }

  // Returns numbers of parts to try, the smallest first. It is as many times the present number as
  // the batch is too large, and then a few more, since some memory does not shrink with the parts.
  std::vector<int> Parts(int64_t now, int64_t batch_that_fits, int64_t max) const {
    const int64_t parts =
        (spec_.train().global_batch() * now + batch_that_fits - 1) / batch_that_fits;
    std::vector<int> tries;
    for (const int64_t number : {parts, parts + 1, parts + 2, 2 * parts}) {
      if (number <= std::min(max, spec_.train().global_batch())) {
        tries.push_back(static_cast<int>(number));
      }
    }
    return tries;
  }

  void OfferReplicas(int64_t batch_that_fits) {
    const int now = ReplicaCount(spec_.train(), target_.world_size);
    v1::JobSpec changed = spec_;
    for (const int replicas : Parts(now, batch_that_fits, ReplicasMax())) {
      changed.mutable_train()->set_replicas(replicas);
      const std::string what = absl::StrCat("train.replicas: ", replicas, ", another computation");
      if (Offer(changed, target_, what)) return;
    }
  }

  void OfferMicrobatch(int64_t rows_now) {
    const auto with = [this](int64_t rows) {
      v1::JobSpec changed = spec_;
      changed.mutable_memory()->set_microbatch(rows);
      return changed;
    };
    const int64_t rows = LargestThatFits(
        1, rows_now, bytes_, limit_, [&](int64_t count) { return Bytes(with(count), target_); });
    if (rows > 0) Offer(with(rows), target_, absl::StrCat("memory.microbatch: ", rows));
  }

  void OfferDevices(int64_t batch_that_fits) {
    v1::JobSpec changed = spec_;
    CompileTarget more = target_;
    for (const int devices : Parts(target_.world_size, batch_that_fits, DevicesMax())) {
      changed.mutable_train()->set_replicas(std::max(spec_.train().replicas(), devices));
      more.world_size = devices;
      if (Offer(changed, more, absl::StrCat("devices.count: ", devices))) return;
    }
  }

  const v1::JobSpec& spec_;
  const CompileTarget& target_;
  const int64_t bytes_;  // without any change
  const int64_t limit_;
  std::vector<std::string> advice_;
};

}  // namespace

absl::StatusOr<engine::CompilePlan> PlanRank(const v1::JobSpec& spec, const CompileTarget& target) {
  TY_ASSIGN_OR_RETURN(const PreparedModel model, PrepareModel(spec, target));
  TY_ASSIGN_OR_RETURN(const auto backend, engine::MakeBackend(target.backend));
  return PlanPrepared(model, *backend, target.rank);
}

absl::StatusOr<engine::CompilePlan> PlanPrepared(const PreparedModel& model,
                                                 engine::Backend& backend, int rank) {
  TY_ASSIGN_OR_RETURN(engine::CompilePlan plan,
                      backend.Plan(model.graph, model.optimizer, model.options));
  // Batches and checkpoints lie in the host's memory, but only the device's memory is limited here.
  if (backend.name() == kCudaBackend) return plan;
  plan.memory.batches =
      BatchBytes(model.graph, (kTrainPrefetchDepth + 1) * model.hosted_rows +
                                  (kEvaluationPrefetchDepth + 1) * model.evaluation_rows);
  if (rank == 0) {
    plan.memory.checkpoint = kCheckpointCopies * (plan.memory.parameters + plan.memory.optimizer);
  }
  return plan;
}

absl::StatusOr<int> ReplicasAtOnce(const v1::JobSpec& spec, CompileTarget target, int64_t limit) {
  target.replicas_at_once = ReplicaCount(spec.train(), target.world_size);
  TY_ASSIGN_OR_RETURN(const PreparedModel model, PrepareModel(spec, target));
  target.replicas_at_once = static_cast<int>(model.options.max_groups);
  for (; target.replicas_at_once > 1; target.replicas_at_once /= 2) {
    TY_ASSIGN_OR_RETURN(const int64_t bytes, Bytes(spec, target));
    if (bytes <= limit) break;
  }
  return std::max(1, target.replicas_at_once);
}

absl::StatusOr<int> ReplicasThatFit(const v1::JobSpec& spec, const CompileTarget& target,
                                    const engine::MemoryPlan& plan, int64_t limit) {
  const int replicas = ReplicaCount(spec.train(), target.world_size);
  if (target.backend == kCudaBackend) return replicas;
  TY_ASSIGN_OR_RETURN(const PreparedModel model, PrepareModel(spec, target));
  TY_ASSIGN_OR_RETURN(const parallel::ReplicaRange hosted,
                      parallel::HostedReplicas(replicas, target.rank, target.world_size));
  const int64_t rows = parallel::ReplicaRows(spec.train().global_batch(), 0, replicas).size();
  const int64_t bytes =
      std::max<int64_t>(1, BatchBytes(model.graph, (kTrainPrefetchDepth + 1) * rows));
  const int64_t more = std::max<int64_t>(0, limit - plan.total()) / bytes;
  return static_cast<int>(std::min<int64_t>(replicas, hosted.end - hosted.begin + more));
}

absl::Status CheckMemory(const v1::JobSpec& spec, const CompileTarget& target,
                         const engine::MemoryPlan& plan, int64_t limit) {
  if (plan.total() <= limit) return absl::OkStatus();
  const int64_t least = ReplicaCount(spec.train(), target.world_size);
  const int64_t batch =
      LargestThatFits(least, spec.train().global_batch(), plan.total(), limit, [&](int64_t size) {
        v1::JobSpec smaller = spec;
        smaller.mutable_train()->set_global_batch(size);
        return Bytes(smaller, target);
      });
  const absl::Status misfit = engine::CheckFits(plan, limit, batch);
  TY_ASSIGN_OR_RETURN(const std::vector<std::string> advice,
                      Advice(spec, target, plan.total(), limit).Give(batch));
  const std::string also = advice.empty()
                               ? ""
                               : absl::StrCat(batch > 0 ? "; so would " : "; but it would with ",
                                              absl::StrJoin(advice, ", or "));
  return MakeError(misfit.code(), kMemoryTooSmall, absl::StrCat(misfit.message(), also));
}

int64_t MemoryOfRank(const run_dir::Assignment& assignment, int rank) {
  const run_dir::RankAssignment* const mine = assignment.FindRank(rank);
  if (mine != nullptr && mine->memory_bytes > 0) return mine->memory_bytes;
  return AllowedMemory() / std::max<int64_t>(1, static_cast<int64_t>(assignment.ranks.size()));
}

}  // namespace trainyard::trainer
