// Finds how far a branch of a program reaches: calls that run on a second stream, beside the calls
// that follow them.
//
//   main stream    dy ─┬─ input gradient ── norm gradient ─┬─ ...
//   second stream      └─ weight gradient ─────────────────┘
//
// A branch ends before the first call that would disturb it, or that begins another branch. So at
// most one layer's branch is open at a time, and what it reads and writes is kept only that long.
#pragma once

#include <vector>

#include "worker/engine/backend/buffer_plan.h"

namespace trainyard::engine::cuda {

// The buffers that a call reads, and those that it writes or may write. kNoBuffer is ignored.
struct Accesses {
  std::vector<BufferId> reads;
  std::vector<BufferId> writes;
};

// Follows the calls of a program in their order.
class Branch {
 public:
  // Returns true if the branch is open and must end before this call: the call begins another
  // branch, writes what the branch reads, or touches what the branch writes.
  bool EndsBefore(bool is_side, const Accesses& call) const;
  // Notes the next call. One on the second stream opens the branch, or continues it if no call has
  // run beside it yet.
  void Add(bool is_side, const Accesses& call);

  bool is_open() const { return is_open_; }
  // Returns true if a call of the main stream runs beside the branch.
  bool has_company() const { return has_company_; }
  // Returns the buffers that the calls of the branch touch.
  std::vector<BufferId> Buffers() const;

 private:
  bool is_open_ = false;
  bool has_company_ = false;
  Accesses touched_;
};

}  // namespace trainyard::engine::cuda
