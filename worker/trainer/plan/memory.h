// Compares the memory that a rank needs with the memory that it has, before it trains.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainyard/v1/spec.pb.h"
#include "worker/engine/backend/backend.h"
#include "worker/run_dir/assignment.h"
#include "worker/trainer/plan/model_setup.h"

namespace trainyard::trainer {

// The number of batches that are read ahead of the step, and of an evaluation.
inline constexpr int kTrainPrefetchDepth = 3;
inline constexpr int kEvaluationPrefetchDepth = 2;

// The planned step needs more than its device has. Do one of the things that the message names: a
// smaller batch, memory.recompute, memory.microbatch, more devices.
inline constexpr char kMemoryTooSmall[] = "MEMORY_TOO_SMALL";

// Plans what the rank of `target` would take of its device, and takes nothing. That is the step
// and, if the device is the host itself, the batches read ahead and, on rank 0, the copies of the
// state while a checkpoint is written.
absl::StatusOr<engine::CompilePlan> PlanRank(const v1::JobSpec& spec, const CompileTarget& target);

// Does the same for a model that is prepared already.
absl::StatusOr<engine::CompilePlan> PlanPrepared(const PreparedModel& model,
                                                 engine::Backend& backend, int rank);

// Returns how many of the replicas that the rank hosts at first make one batch (CompileTarget) that
// fits into `limit` bytes: all, or half of them, and so on. Returns 1 if that does not fit either.
absl::StatusOr<int> ReplicasAtOnce(const v1::JobSpec& spec, CompileTarget target, int64_t limit);

// Returns the most replicas that the rank can host if its device has `limit` bytes and `plan` is
// what it takes now. On the host, the batches that are read ahead grow with the replicas.
absl::StatusOr<int> ReplicasThatFit(const v1::JobSpec& spec, const CompileTarget& target,
                                    const engine::MemoryPlan& plan, int64_t limit);

// Returns OK if `plan` fits into `limit` bytes, else RESOURCE_EXHAUSTED (MEMORY_TOO_SMALL). The
// message has the numbers, the largest global batch that would fit, and those of memory.recompute,
// memory.microbatch, train.replicas and devices.count that would make this batch fit, each with its
// value.
absl::Status CheckMemory(const v1::JobSpec& spec, const CompileTarget& target,
                         const engine::MemoryPlan& plan, int64_t limit);

// Returns the memory of the rank's device. If the assignment does not say, it is the rank's share
// of what this host allows.
int64_t MemoryOfRank(const run_dir::Assignment& assignment, int rank);

}  // namespace trainyard::trainer
