// What a rank tells all others in each step: what it wants to be done, and how long it computed.
// Ballots travel with the step's gradients, so agreement costs no message of its own.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace trainyard::trainer {

// As a vote: this rank wants it. Once agreed: some rank wants it, so all do it after this step.
struct Votes {
  bool stop = false;
  bool checkpoint = false;
  bool evaluate = false;

  friend bool operator==(const Votes&, const Votes&) = default;
};

struct Ballot {
  Votes votes = {};
  // Corrupt samples that the rank passed over in this step.
  int64_t skipped = 0;
  // What the rank computed in its step before, by itself: without waiting for others or for data.
  int64_t computed_rows = 0;
  double compute_seconds = 0;
  // Of its step before, it saw a loss or gradient that is not finite: where each rank updates its
  // own blocks, the others may not have seen it. All end the training then.
  bool diverged = false;

  friend bool operator==(const Ballot&, const Ballot&) = default;
};

inline constexpr size_t kBallotLength = 7;
std::array<double, kBallotLength> EncodeBallot(const Ballot& ballot);
// `values`: [ranks, kBallotLength].
std::vector<Ballot> DecodeBallots(absl::Span<const double> values);

// What some rank wants.
Votes AgreedVotes(absl::Span<const Ballot> ballots);
// Whether some rank saw a loss that is not finite.
bool HasDiverged(absl::Span<const Ballot> ballots);
// Of all ranks.
int64_t SkippedSamples(absl::Span<const Ballot> ballots);

}  // namespace trainyard::trainer
