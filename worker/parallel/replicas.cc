// Divides rows and replicas as evenly as possible.
#include "worker/parallel/replicas.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace trainyard::parallel {
namespace {

// Returns where part `index` of `total` things begins, when `parts` parts differ by at most 1 and
// larger ones come first.
int64_t PartBegin(int64_t total, int64_t index, int64_t parts) {
  return index * (total / parts) + std::min(index, total % parts);
}

}  // namespace

RowRange ReplicaRows(int64_t rows, int replica, int replicas) {
  TY_CHECK(rows >= 0 && replica >= 0 && replica < replicas);
  return {PartBegin(rows, replica, replicas), PartBegin(rows, replica + 1, replicas)};
}

absl::StatusOr<ReplicaRange> HostedReplicas(int replicas, int rank, int world_size) {
  TY_CHECK(rank >= 0 && rank < world_size);
  if (replicas < world_size) {
    return absl::InvalidArgumentError(
        absl::StrCat(replicas, " replicas cannot occupy ", world_size,
                     " devices; use at least as many replicas as devices"));
  }
  return ReplicaRange{static_cast<int>(PartBegin(replicas, rank, world_size)),
                      static_cast<int>(PartBegin(replicas, rank + 1, world_size))};
}

}  // namespace trainyard::parallel
