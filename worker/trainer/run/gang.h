// Defines the ranks that train together, and the lines over which they communicate.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/engine/backend/backend.h"
#include "worker/parallel/block_exchange.h"
#include "worker/parallel/communicator.h"
#include "worker/parallel/gradient_exchange.h"
#include "worker/parallel/group.h"
#include "worker/parallel/stage_link.h"
#include "worker/run_dir/assignment.h"
#include "worker/trainer/run/run_setup.h"

namespace trainyard::trainer {

// The parts of which the exchange of an arena on a device is made.
struct DeviceExchangeRequest {
  engine::Executable& executable;
  // Connects the same ranks over host memory, and nothing else uses it.
  std::unique_ptr<parallel::Communicator> host;
  parallel::Group group;  // the ranks that `host` connects
  // Its spans lie on the device.
  parallel::WireExchangeOptions memory;
  // Sums are taken in the order of the plan, to the bit.
  bool keeps_order = false;
  // Gradients travel in bfloat16 if the device's library sums them.
  bool in_bf16 = false;
  // No step may begin before the sums of the one before are there.
  bool finishes_steps = false;
  // Batch norm takes its statistics over all ranks.
  bool syncs_statistics = false;
};
using MakeDeviceExchange =
    std::function<absl::StatusOr<std::unique_ptr<parallel::GradientExchange>>(
        DeviceExchangeRequest request)>;

// The parts of which the link between two stages on devices is made (pipeline_executable.h).
struct DeviceLinkRequest;
using MakeDeviceLink =
    std::function<absl::StatusOr<std::unique_ptr<parallel::StageLink>>(DeviceLinkRequest request)>;

// The lines between the ranks of a gang.
struct Communicators {
  // Connects all ranks over the host's memory, for votes, weights and sums of evaluations.
  std::unique_ptr<parallel::Communicator> host;
  // Connects arenas that lie on devices. It is null if they do not, or if one rank trains alone. It
  // may be called while the assignment of the gang lives.
  MakeDeviceExchange make_device_exchange;
  // Does so for two stages of a pipeline.
  MakeDeviceLink make_device_link;
  // Connects further groups over the host's memory, for those that talk at the same time as others.
  parallel::ConnectGroup connect_group;
};

// Connects the other ranks, and returns when all are connected. `arena` says where the reduction
// arena lies.
using Connect = std::function<absl::StatusOr<Communicators>(const run_dir::Assignment& assignment,
                                                            engine::MemoryKind arena)>;

struct Gang {
  Communicators lines;
  std::vector<std::string> device_types;  // by rank
  // Sums gradients over the pipelines (over the ranks if the model is not cut). It is null if one
  // of them trains alone.
  std::unique_ptr<parallel::GradientExchange> exchange;
  // True if each range of the parameters is updated as soon as its gradients have been summed.
  bool updates_ranges = false;

  void set_timeout(absl::Duration timeout);
};

// Returns a line of all ranks besides the first one.
parallel::Group AllRanks(const std::string& name, const GridPlace& place);
// Returns a line of the ranks that compute the same stage as this one, by pipeline, or of all ranks
// if the model is not cut.
parallel::Group RanksOfStage(const std::string& name, const GridPlace& place);

}  // namespace trainyard::trainer
