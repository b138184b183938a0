// With a ballot a rank tells all others in each step what it wants to be done, and how long it
// computed. Ballots travel with the step's gradients, so agreement costs no message of its own.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace trainyard::trainer {

// In a ballot, a vote says that this rank wants something. In the agreement it says that some rank
// wants it, so that all do it after the step in which they hear of it.
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
  // The work of the rank in the last step that it had finished, not counting the time in which it
  // waited for other ranks or for data. The step is the same on all ranks.
  int64_t computed_step = 0;
  int64_t computed_rows = 0;
  double compute_seconds = 0;
  // The first step in which the rank saw a loss or a gradient that is not finite, or 0. If each
  // rank updates its own blocks, the others may not have seen it. All ranks then end the training.
  int64_t diverged_step = 0;

  friend bool operator==(const Ballot&, const Ballot&) = default;
};

inline constexpr size_t kBallotLength = 8;
std::array<double, kBallotLength> EncodeBallot(const Ballot& ballot);
// Decodes ballots. `values` is [ranks, kBallotLength].
std::vector<Ballot> DecodeBallots(absl::Span<const double> values);

// Returns what any rank wants.
Votes AgreedVotes(absl::Span<const Ballot> ballots);
// Returns the first step in which any rank saw a loss or a gradient that is not finite, or 0.
int64_t DivergedStep(absl::Span<const Ballot> ballots);
// Returns how many samples all ranks together skipped.
int64_t SkippedSamples(absl::Span<const Ballot> ballots);

}  // namespace trainyard::trainer
