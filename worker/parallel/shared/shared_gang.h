// Lets the ranks of one host find each other's memory: each maps the memory in which the others
// compute.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/files.h"
#include "common/base/shared_memory.h"
#include "worker/parallel/communicator.h"
#include "worker/parallel/shared/rank_board.h"

namespace trainyard::parallel {

// The memory that a rank lends to the others: a file that is mapped at `base`, and the offsets of
// its parts.
struct SharedArena {
  int fd = -1;
  std::byte* base = nullptr;
  int64_t bytes = 0;
  int64_t reduction_offset = 0;
  std::vector<int64_t> slot_offsets = {};  // at most kTermsMax
  int64_t parameters_offset = 0;
};

// The memory of any rank, as this process sees it.
struct RankMemory {
  float* reduction = nullptr;
  std::vector<float*> slots = {};
  float* parameters = nullptr;
};

struct SharedGang {
  int rank = 0;              // this rank's place among them
  std::vector<int> members;  // the ranks' names in errors
  std::vector<RankMemory> memory = {};
  std::vector<RankBoard*> boards = {};
  std::vector<UniqueFd> lives = {};  // not watched if invalid
  // The mappings into which the pointers point, except for memory that somebody else owns.
  std::vector<std::unique_ptr<SharedMemory>> mappings = {};

  int size() const { return static_cast<int>(memory.size()); }
};

// Connects the ranks of `group`, which all call it. The arena and its descriptor must stay as they
// are for as long as the gang is used. Returns FAILED_PRECONDITION on all ranks if one of them
// cannot map what another lends, because they are on different hosts, in different process
// namespaces, of different users, or may not trace each other. Gradients then take the wire.
absl::StatusOr<SharedGang> ConnectSharedGang(const SharedArena& arena, std::vector<int> members,
                                             Communicator& group);

}  // namespace trainyard::parallel
