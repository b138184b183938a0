// Plans the training of a spec on one device without training: its memory, its arithmetic, and the
// time that a step will take.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trainyard/v1/spec.pb.h"
#include "worker/engine/backend/backend.h"
#include "worker/engine/graph/cost.h"
#include "worker/trainer/plan/machine_speed.h"
#include "worker/trainer/plan/model_setup.h"

namespace trainyard::trainer {

// kText has the memory only; kTable has everything for people, and kJson for programs; kLayers has
// a row for each layer; kDot is the graph of the step for Graphviz; kNeed is the least memory that
// will do, for programs.
enum class PlanFormat { kText, kTable, kJson, kLayers, kDot, kNeed };

struct PlanOptions {
  std::string backend = "cpu";
  int threads = 1;
  PlanFormat format = PlanFormat::kText;
  int64_t batch = 0;  // replaces the spec's global batch unless 0
  // The memory of the device. 0 means this machine's memory, shared by the devices.
  int64_t memory_bytes = 0;
  std::vector<std::string> without = {};  // names of passes to leave out
  // False if the backend only describes a device. The plan then predicts no times.
  bool measures_machine = true;
};

// The nodes of one op, or work beside the graph: "reorder" or "update".
struct PlannedOp {
  std::string op;
  int64_t nodes = 0;
  int64_t calls = 0;
  engine::Cost cost;
  double seconds = 0;  // predicted
};

// The needs of the step with a pass switched on or off, while the others stay as they are.
struct PassEffect {
  int64_t kernels = 0;
  double bytes_moved = 0;
  int64_t activation_bytes = 0;
};
struct PlannedPass {
  std::string name;
  std::string sentence;
  bool is_on = false;
  PassEffect off, on;
};

// A layer of the model with the arithmetic of one sample, forward.
struct PlannedLayer {
  std::string name;
  std::string op;
  engine::Shape output;
  int64_t parameters = 0;
  double flops = 0;
};

struct PlannedStep {
  std::string name;  // of the job
  std::string backend;
  engine::Precision precision = engine::Precision::kF32;
  bool is_auto_precision = false;  // the spec left it to the device
  int threads = 1;
  int devices = 1;
  int64_t global_batch = 0;
  int64_t hosted_rows = 0;  // of a device
  int64_t rows = 0;         // computed at once
  int64_t parameters = 0;
  engine::MemoryPlan memory;
  int64_t memory_limit = 0;
  std::string misfit;  // why it does not fit; empty if it does
  std::vector<engine::Fallback> fallbacks;
  MachineSpeed machine;
  std::vector<PlannedOp> ops;  // the slowest first; of all rows of the device
  std::vector<PlannedPass> passes;
  std::vector<PlannedLayer> layers;

  PlannedOp Total() const;
  double samples_per_second() const;
};

// Leaves out the passes of these names. Returns INVALID_ARGUMENT for a name that no pass has.
absl::Status SwitchOff(const std::vector<std::string>& names, engine::PassOptions& passes);
// Returns the rank for which plans are made: rank 0, which hosts as many rows as any.
CompileTarget TargetOf(const v1::JobSpec& spec, const PlanOptions& options);

// The least memory of a device that can compute the step, with as few replicas at once as possible.
// On a device that has less, the rank would be refused (CheckMemory).
struct LeastMemory {
  int64_t host_bytes = 0;  // if the device is a share of the host
  // If it is a GPU: the parameters and the optimizer's state. It needs more, which it decides.
  int64_t gpu_bytes = 0;
};
absl::StatusOr<LeastMemory> PlanLeastMemory(const v1::JobSpec& spec, const PlanOptions& options);

// Plans the step of TargetOf(). Returns INVALID_ARGUMENT for an unknown pass.
absl::StatusOr<PlannedStep> PlanStep(const v1::JobSpec& spec, const PlanOptions& options);

}  // namespace trainyard::trainer
