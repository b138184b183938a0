// Encodes ballots as numbers that travel beside the gradients.
#include "worker/trainer/run/ballot.h"

#include <algorithm>

#include "common/base/check.h"

namespace trainyard::trainer {

std::array<double, kBallotLength> EncodeBallot(const Ballot& ballot) {
  return {ballot.votes.stop ? 1.0 : 0.0,
          ballot.votes.checkpoint ? 1.0 : 0.0,
          ballot.votes.evaluate ? 1.0 : 0.0,
          static_cast<double>(ballot.skipped),
          static_cast<double>(ballot.computed_step),
          static_cast<double>(ballot.computed_rows),
          ballot.compute_seconds,
          static_cast<double>(ballot.diverged_step)};
}

std::vector<Ballot> DecodeBallots(absl::Span<const double> values) {
  TY_CHECK(values.size() % kBallotLength == 0);
  std::vector<Ballot> ballots;
  for (size_t at = 0; at < values.size(); at += kBallotLength) {
    ballots.push_back({.votes = {.stop = values[at] > 0,
                                 .checkpoint = values[at + 1] > 0,
                                 .evaluate = values[at + 2] > 0},
                       .skipped = static_cast<int64_t>(values[at + 3]),
                       .computed_step = static_cast<int64_t>(values[at + 4]),
                       .computed_rows = static_cast<int64_t>(values[at + 5]),
                       .compute_seconds = values[at + 6],
                       .diverged_step = static_cast<int64_t>(values[at + 7])});
  }
  return ballots;
}

Votes AgreedVotes(absl::Span<const Ballot> ballots) {
  Votes agreed;
  for (const Ballot& ballot : ballots) {
    agreed.stop |= ballot.votes.stop;
    agreed.checkpoint |= ballot.votes.checkpoint;
    agreed.evaluate |= ballot.votes.evaluate;
  }
  return agreed;
}

int64_t DivergedStep(absl::Span<const Ballot> ballots) {
  int64_t first = 0;
  for (const Ballot& ballot : ballots) {
    const int64_t step = ballot.diverged_step;
    if (step > 0 && (first == 0 || step < first)) first = step;
  }
  return first;
}

int64_t SkippedSamples(absl::Span<const Ballot> ballots) {
  int64_t skipped = 0;
  for (const Ballot& ballot : ballots) skipped += ballot.skipped;
  return skipped;
}

}  // namespace trainyard::trainer
