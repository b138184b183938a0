// What the ranks of a gang tell each other before and between their steps. All are collectives over
// the host's memory; a single rank gets its own.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/engine/backend/backend.h"
#include "worker/parallel/communicator.h"

namespace trainyard::trainer {

// Of all ranks, by rank: [ranks, mine.size()]. To the bit; each rank brings as many.
absl::StatusOr<std::vector<double>> GatherNumbers(parallel::Communicator& communicator,
                                                  absl::Span<const double> mine);
// By rank; cut off after kGatheredNameMax bytes.
inline constexpr size_t kGatheredNameMax = 64;
absl::StatusOr<std::vector<std::string>> GatherNames(parallel::Communicator& communicator,
                                                     absl::string_view mine);

// Of rank 0, to the bit.
absl::Status BroadcastNumbers(parallel::Communicator& communicator, absl::Span<double> values);
absl::Status BroadcastState(parallel::Communicator& communicator, engine::ModelState& executable);

// FAILED_PRECONDITION where `facts` are not those of rank 0.
absl::Status CheckAgreement(parallel::Communicator& communicator, const std::string& facts);

}  // namespace trainyard::trainer
