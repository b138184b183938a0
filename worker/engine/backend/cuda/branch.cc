// Compares what calls read and write.
#include "worker/engine/backend/cuda/branch.h"

#include <algorithm>

namespace trainyard::engine::cuda {
namespace {

bool HaveCommon(const std::vector<BufferId>& a, const std::vector<BufferId>& b) {
  return std::any_of(a.begin(), a.end(), [&b](BufferId buffer) {
    return buffer != kNoBuffer && std::find(b.begin(), b.end(), buffer) != b.end();
  });
}

void Append(std::vector<BufferId>& to, const std::vector<BufferId>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

}  // namespace

bool Branch::EndsBefore(bool is_side, const Accesses& call) const {
  if (!is_open_) return false;
  // The calls of one branch follow each other on its stream.
  if (is_side) return has_company_;
  return HaveCommon(call.writes, touched_.reads) || HaveCommon(call.writes, touched_.writes) ||
         HaveCommon(call.reads, touched_.writes);
}

void Branch::Add(bool is_side, const Accesses& call) {
  if (!is_side) {
    has_company_ = is_open_;
    return;
  }
  is_open_ = true;
  Append(touched_.reads, call.reads);
  Append(touched_.writes, call.writes);
}

std::vector<BufferId> Branch::Buffers() const {
  std::vector<BufferId> buffers = touched_.reads;
  Append(buffers, touched_.writes);
  return buffers;
}

}  // namespace trainyard::engine::cuda
