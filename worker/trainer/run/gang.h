// Who trains together, and how they talk.
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
#include "worker/run_dir/assignment.h"
#include "worker/trainer/run/run_setup.h"

namespace trainyard::trainer {

// Makes the exchange of an arena on a device, of what one of host memory is made of: `memory`'s
// spans lie on the device. `host` is a line of its own. `keeps_order`: sums are taken as the plan
// says, to the bit.
struct DeviceExchangeRequest {
  engine::Executable& executable;
  parallel::Communicator& device;
  std::unique_ptr<parallel::Communicator> host;
  parallel::WireExchangeOptions memory;
  bool keeps_order = false;
};
using MakeDeviceExchange =
    std::function<absl::StatusOr<std::unique_ptr<parallel::GradientExchange>>(
        DeviceExchangeRequest request)>;

// How the ranks of a gang talk.
struct Communicators {
  // Over the host's memory: votes, weights, sums of evaluations.
  std::unique_ptr<parallel::Communicator> host;
  // For a reduction arena on a device; null where there is none, or one rank alone.
  std::unique_ptr<parallel::Communicator> device;
  MakeDeviceExchange make_device_exchange;  // where `device` is
  // Further lines over the host's memory, for who talks at the same time as others: by name.
  parallel::ConnectGroup connect_group;
};

// Reaches the other ranks; returns when all are connected. `arena` says where the reduction arena
// lies.
using Connect = std::function<absl::StatusOr<Communicators>(const run_dir::Assignment& assignment,
                                                            engine::MemoryKind arena)>;

struct Gang {
  Communicators lines;
  std::vector<std::string> device_types;  // by rank
  // Sums gradients over the pipelines (over the ranks, where the model is not cut). Null where one
  // of them trains alone.
  std::unique_ptr<parallel::GradientExchange> exchange;
  // Each range of the parameters is updated as soon as its gradients have been summed.
  bool updates_ranges = false;

  void set_timeout(absl::Duration timeout);
};

// A line of all ranks beside the first one.
parallel::Group AllRanks(const std::string& name, const GridPlace& place);
// A line of the ranks that compute the same stage as this one, by pipeline; of all ranks where the
// model is not cut.
parallel::Group RanksOfStage(const std::string& name, const GridPlace& place);

}  // namespace trainyard::trainer
