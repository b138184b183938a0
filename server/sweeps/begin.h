// Keeps how a job of a trial begins in the entry that decided it, so that it begins alike whenever
// the server acts on that.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/sweep/space.h"
#include "server/core/lifecycle/submission.h"
#include "server/core/lifecycle/words.h"

namespace trainyard::sweeps {

// The beginning of a job of a trial.
struct Begin {
  sweep::Values values;
  // The checkpoint from which it goes on; unset for a new training.
  std::optional<core::CheckpointRef> from;

  friend bool operator==(const Begin&, const Begin&) = default;
};

// Returns it as JSON; each value is a text of JSON itself:
// {"values": {"optimizer.sgd.lr": "0.1"}, "from": "jobs/12/checkpoints/40"}.
std::string ToText(const Begin& begin);
// Returns DATA_LOSS if the text is no such thing.
absl::StatusOr<Begin> BeginFromText(absl::string_view text);

}  // namespace trainyard::sweeps
