// Implements the trainers' command line: run one rank of an attempt, plan the memory of a spec,
// list data sets, or verify a checkpoint.
//
// There is a program for each backend, so that a machine without a device loads none of its
// libraries: each is a main() of its own around RunCommandLine.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/parallel/gradient_exchange.h"
#include "worker/run_dir/assignment.h"
#include "worker/run_dir/paths.h"
#include "worker/trainer/run/gang.h"

namespace trainyard::trainer {

struct DeviceFlags {
  std::string plan_cache;  // a folder; empty means the default place
  // A file that describes a device instead of a real one; empty means none.
  std::string description;
};

// The facts that a rank of a gang has when it connects its device to the others'.
struct DeviceGang {
  run_dir::RunDir run_dir;
  run_dir::Assignment assignment;
  int rank = 0;
  std::string transport = "auto";
  const std::atomic<bool>* cancelled = nullptr;  // borrowed
};

// The part that the trainer of a backend with devices of its own adds to the CPU trainer.
class DeviceSupport {
 public:
  virtual ~DeviceSupport() = default;

  // Registers the backend, without touching a device. Returns INVALID_ARGUMENT or NOT_FOUND for a
  // flag.
  virtual absl::Status Register(const DeviceFlags& flags) = 0;
  // Makes the device of `rank`, which is one of the assignment, the current device of the process,
  // and fills in the memory that the rank may use. It is called before the first use of a device.
  // Returns UNAVAILABLE if the device does not exist.
  virtual absl::Status Choose(const run_dir::Assignment& assignment,
                              run_dir::RankAssignment& rank) = 0;
  // Returns the memory of the device for which plans are made, or UNAVAILABLE if there is none.
  virtual absl::StatusOr<int64_t> MemoryBytes() = 0;
  // Connects the devices of the ranks that exchange gradients, by the best way that works for all
  // of them. Each of them calls it at the same time.
  virtual absl::StatusOr<std::unique_ptr<parallel::GradientExchange>> MakeExchange(
      const DeviceGang& gang, DeviceExchangeRequest request) = 0;
  // Connects two stages of a pipeline in the same way. Both call it at the same time.
  virtual absl::StatusOr<std::unique_ptr<parallel::StageLink>> MakeLink(
      const DeviceGang& gang, DeviceLinkRequest request) = 0;
};

struct Program {
  std::string name = "trainyard-trainer";
  // The backend of plans, unless --backend gives another.
  std::string backend = "cpu";
  DeviceSupport* device = nullptr;
};

// Runs the whole program, and returns its exit code (worker/run_dir/records.h).
int RunCommandLine(int argc, char** argv, const Program& program);

}  // namespace trainyard::trainer
