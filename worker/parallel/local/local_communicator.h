// Connects a gang of threads in one process. This communicator is for tests and for runs of a
// single rank.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "worker/parallel/communicator.h"

namespace trainyard::parallel {

// The memory that the ranks of a local gang share. A rank whose communicator is destroyed is lost
// to the others once they enter a collective that it has not left.
class LocalGroup;
std::shared_ptr<LocalGroup> MakeLocalGroup(int world_size);

// Makes the communicator of one rank. Sums are taken in rank order, so all ranks get the same bits.
// A group of one never waits.
std::unique_ptr<Communicator> MakeLocalCommunicator(std::shared_ptr<LocalGroup> group, int rank);

}  // namespace trainyard::parallel
