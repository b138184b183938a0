// Decides which replica has which rows of the global batch, and which rank hosts which replicas, by
// pure functions.
//
// A job has a fixed number of replicas; replica i owns a fixed slice of every global batch. Devices
// host replicas. The slices do not depend on the devices, so neither does the result.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace trainyard::parallel {

// Rows [begin, end) of a global batch.
struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  friend bool operator==(const RowRange&, const RowRange&) = default;
};

// Returns the slice of `rows` (the global batch, or the smaller last one of an epoch) that
// `replica` owns. Sizes differ by at most 1, and larger ones come first. A replica may own no rows
// of a small last batch.
RowRange ReplicaRows(int64_t rows, int replica, int replicas);

// The contiguous replicas [begin, end) that `rank` hosts, as even as possible. Returns
// INVALID_ARGUMENT if there are more ranks than replicas.
struct ReplicaRange {
  int begin = 0;
  int end = 0;
  friend bool operator==(const ReplicaRange&, const ReplicaRange&) = default;
};
absl::StatusOr<ReplicaRange> HostedReplicas(int replicas, int rank, int world_size);

}  // namespace trainyard::parallel
