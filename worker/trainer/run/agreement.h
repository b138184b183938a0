// Lets the ranks of a gang exchange what they must agree on before and between their steps. All
// functions are collectives over the host's memory. A single rank gets back what it gave.
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

// Returns the numbers of all ranks, by rank: [ranks, mine.size()]. Each rank brings as many, and
// they arrive to the bit.
absl::StatusOr<std::vector<double>> GatherNumbers(parallel::Communicator& communicator,
                                                  absl::Span<const double> mine);
// Returns the names of all ranks, by rank, each cut off after kGatheredNameMax bytes.
inline constexpr size_t kGatheredNameMax = 64;
absl::StatusOr<std::vector<std::string>> GatherNames(parallel::Communicator& communicator,
                                                     absl::string_view mine);

// Give all ranks what rank 0 has, to the bit.
absl::Status BroadcastNumbers(parallel::Communicator& communicator, absl::Span<double> values);
absl::Status BroadcastState(parallel::Communicator& communicator, engine::ModelState& executable);

// Returns the text of rank `root`. Only that rank's `mine` counts.
absl::StatusOr<std::string> BroadcastText(parallel::Communicator& communicator,
                                          absl::string_view mine, int root);

// Returns FAILED_PRECONDITION if `facts` are not those of rank 0.
absl::Status CheckAgreement(parallel::Communicator& communicator, const std::string& facts);

}  // namespace trainyard::trainer
