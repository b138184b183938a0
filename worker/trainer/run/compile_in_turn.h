// Lets few ranks of a gang measure kernels for all of them: the first rank of each kind of work
// measures, the others of that kind take its choices over, and ranks that share a device measure
// one after the other.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/parallel/communicator.h"

namespace trainyard::trainer {

// The work of a rank, as the others see it.
struct MeasuredWork {
  // Ranks of the same kind compile the same layers for the same type of device.
  std::string kind;
  // Ranks with the same device would disturb each other's measurements.
  std::string device;
};

// Returns for each rank the one that measures for it, which is the first of its kind.
std::vector<int> LeadersOf(const std::vector<MeasuredWork>& ranks);
// Returns the ranks that measure, in rounds. Those of a round measure at the same time, and no two
// of them have the same device. Both are in order of rank.
std::vector<std::vector<int>> MeasuringRounds(const std::vector<MeasuredWork>& ranks);

// Compiles this rank's part of the model with the choices of another rank, and returns its own
// choices. If the text is empty, it measures them.
using CompileWith = std::function<absl::StatusOr<std::string>(const std::string& choices)>;

// Calls `compile` once on every rank: in its round with an empty text if the rank measures for its
// kind, and otherwise with the choices of the rank that does so, when all rounds are over. A kind's
// and a device's name count up to kGatheredNameMax bytes. This is a collective. It leaves a timeout
// in which the slowest rank can still measure what it could not take over.
absl::Status CompileInTurn(parallel::Communicator& host, const MeasuredWork& mine,
                           const CompileWith& compile);

}  // namespace trainyard::trainer
