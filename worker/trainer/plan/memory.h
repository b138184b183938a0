// What a rank needs in memory, held against what it has before it trains.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainyard/v1/spec.pb.h"
#include "worker/engine/backend/backend.h"
#include "worker/run_dir/assignment.h"
#include "worker/trainer/model_setup.h"

namespace trainyard::trainer {

// Batches ahead of the step, and of an evaluation.
inline constexpr int kTrainPrefetchDepth = 3;
inline constexpr int kEvaluationPrefetchDepth = 2;

// The step was planned, and its device has less: do one of the things that the message names (a
// smaller batch, memory.recompute, memory.microbatch, more devices).
inline constexpr char kMemoryTooSmall[] = "MEMORY_TOO_SMALL";

// What the rank of `target` would take of its device, planned without taking it: the step and,
// where the device is the host itself, the batches read ahead and, on rank 0, the copies of the
// state while a checkpoint is written.
absl::StatusOr<engine::CompilePlan> PlanRank(const v1::JobSpec& spec, const CompileTarget& target);

// The same of a model that is prepared already.
absl::StatusOr<engine::CompilePlan> PlanPrepared(const PreparedModel& model,
                                                 engine::Backend& backend, int rank);

// How many of the replicas that the rank hosts at first make one batch (CompileTarget), so that it
// fits into `limit` bytes: all, or half of them, and so on; 1 where that does not fit either.
absl::StatusOr<int> ReplicasAtOnce(const v1::JobSpec& spec, CompileTarget target, int64_t limit);

// The most replicas that the rank can host where its device has `limit` bytes and `plan` is what it
// takes now: batches that are read ahead grow with them, on the host.
absl::StatusOr<int> ReplicasThatFit(const v1::JobSpec& spec, const CompileTarget& target,
                                    const engine::MemoryPlan& plan, int64_t limit);

// OK where `plan` fits into `limit` bytes; else RESOURCE_EXHAUSTED (MEMORY_TOO_SMALL) with the
// numbers, the largest global batch that would fit, and which of memory.recompute,
// memory.microbatch, train.replicas and devices.count would make this one fit, each with its
// number.
absl::Status CheckMemory(const v1::JobSpec& spec, const CompileTarget& target,
                         const engine::MemoryPlan& plan, int64_t limit);

// Memory of the rank's device; where the assignment does not tell, the rank's share of what this
// host allows.
int64_t MemoryOfRank(const run_dir::Assignment& assignment, int rank);

}  // namespace trainyard::trainer
