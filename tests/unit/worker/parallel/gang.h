// Gangs for the contract tests: ranks are threads of the test, over any communicator.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "worker/parallel/communicator.h"
#include "worker/parallel/local/local_communicator.h"
#include "worker/run_dir/paths.h"

namespace trainyard::parallel {

// Tells a rank of a gang where to find the others.
struct Place {
  int rank = 0;
  int world_size = 1;
  run_dir::RunDir run_dir{""};
  std::shared_ptr<LocalGroup> group;
};

// A way to make communicators. Its communicators take spans of host memory.
struct Transport {
  std::string name;
  std::function<absl::StatusOr<std::unique_ptr<Communicator>>(const Place&)> connect;

  friend void PrintTo(const Transport& transport, std::ostream* out) { *out << transport.name; }
};
Transport LocalTransport();
Transport GlooTransport();
Transport ShmTransport();

// Runs `work` on `world_size` threads, each in its place; returns the statuses by rank.
std::vector<absl::Status> RunPlaces(int world_size,
                                    const std::function<absl::Status(const Place&)>& work);

// Runs `work` on `world_size` threads, each with a communicator that ends with its thread; returns
// the statuses by rank.
using RankWork = std::function<absl::Status(Communicator&)>;
std::vector<absl::Status> RunGang(const Transport& transport, int world_size, const RankWork& work,
                                  absl::Duration timeout = absl::Seconds(20));

// Waits until every rank has called it, by an all_gather.
absl::Status Meet(Communicator& communicator);

}  // namespace trainyard::parallel
