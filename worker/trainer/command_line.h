// The trainers' command line: one rank of an attempt, the memory plan of a spec, what data sets
// there are, or whether a checkpoint is what it says.
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
  std::string plan_cache;   // a file; empty: where such files lie
  std::string description;  // a file that describes a device in the place of one; empty: none
};

// What a rank of a gang knows when it connects its device to the others'.
struct DeviceGang {
  run_dir::RunDir run_dir;
  run_dir::Assignment assignment;
  int rank = 0;
  std::string transport = "auto";
  const std::atomic<bool>* cancelled = nullptr;  // borrowed
};

// The part that the trainer of a backend with devices of its own adds to that of the CPU.
class DeviceSupport {
 public:
  virtual ~DeviceSupport() = default;

  // Makes the backend known; touches no device. INVALID_ARGUMENT or NOT_FOUND for a flag.
  virtual absl::Status Register(const DeviceFlags& flags) = 0;
  // Makes the rank's device the one that the process uses, and fills in its memory where that is
  // not known. Before the first use of any. UNAVAILABLE where it is not here.
  virtual absl::Status Choose(run_dir::RankAssignment& rank) = 0;
  // The memory of the device that plans are made for. UNAVAILABLE where there is none.
  virtual absl::StatusOr<int64_t> MemoryBytes() = 0;
  // Connects the devices of the gang, by the best way that works for all of them. Every rank calls
  // it at the same time.
  virtual absl::StatusOr<std::unique_ptr<parallel::GradientExchange>> MakeExchange(
      const DeviceGang& gang, DeviceExchangeRequest request) = 0;
};

struct Program {
  std::string name = "trainyard-trainer";
  // The backend of plans, unless --backend says otherwise.
  std::string backend = "cpu";
  DeviceSupport* device = nullptr;
};

// The whole program; returns its exit code (worker/run_dir/records.h).
int RunCommandLine(int argc, char** argv, const Program& program);

}  // namespace trainyard::trainer
