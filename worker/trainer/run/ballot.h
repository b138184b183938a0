// With a ballot a rank tells all others in each step what it wants to be done, and how long it
// computed. Ballots travel with the step's gradients, so agreement costs no message of its own.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace trainyard::trainer {

// In a ballot, a vote says that this rank wants something. In the agreement it says that some rank
// wants it, so that all do it after this step.
struct Votes {
  bool stop = false;
  bool checkpoint = false;
  bool evaluate = false;

  friend bool operator==(const Votes&, const Votes&) = default;
};

struct Ballot {
  Votes votes = {};
  // The number of corrupt samples that the rank skipped in this step.
  int64_t skipped = 0;
  // The work of the rank in the step before, not counting the time in which it waited for other
  // ranks or for data.
  int64_t computed_rows = 0;
  double compute_seconds = 0;
  // In the step before, the rank saw a loss or a gradient that is not finite. If each rank updates
  // its own blocks, the others may not have seen it. All ranks then end the training.
  bool diverged = false;

  friend bool operator==(const Ballot&, const Ballot&) = default;
};

inline constexpr size_t kBallotLength = 7;
std::array<double, kBallotLength> EncodeBallot(const Ballot& ballot);
// Decodes ballots. `values` is [ranks, kBallotLength].
std::vector<Ballot> DecodeBallots(absl::Span<const double> values);

// Returns what any rank wants.
Votes AgreedVotes(absl::Span<const Ballot> ballots);
// Returns true if any rank saw a loss or a gradient that is not finite.
bool HasDiverged(absl::Span<const Ballot> ballots);
// Returns how many samples all ranks together skipped.
int64_t SkippedSamples(absl::Span<const Ballot> ballots);

}  // namespace trainyard::trainer
