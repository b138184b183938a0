// Defines a sweep and the entries of its record. The record is all that is kept: what has happened
// to its trials, and what was decided, in order.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trainyard::core::sweeping {

enum class Search { kGrid, kRandom, kAsha, kPbt };

// A sweep as it was asked for. It never changes.
struct Definition {
  Search search = Search::kRandom;
  bool maximize = true;
  int32_t trials = 1;      // at least 1
  int32_t concurrent = 1;  // at least 1: the most trials that are active at a time
  int32_t factor = 4;      // at least 2, for kAsha
  int32_t rungs = 1;       // at least 1, for kAsha and kPbt
  std::optional<double> target = {};
  int32_t patience = 0;    // 0 means none
  double quantile = 0.25;  // for kPbt
  // False if trials that are not among the best at a rung are stopped, and never wait. Unset if
  // that depends on whether they can wait (Entry::can_pause).
  std::optional<bool> pause = {};

  friend bool operator==(const Definition&, const Definition&) = default;
};

// Returns the levels of training of the search: `rungs` for kAsha and kPbt, and 1 for the others.
int32_t RungCount(const Definition& definition);
// Returns the share of the whole training at which a rung is, in (0, 1]; 1 for the last rung.
double RungShare(const Definition& definition, int32_t rung);
// Returns the number of rungs that successive halving has room for with this many trials: the
// largest r such that factor^(r-1) <= trials.
int32_t DefaultRungs(int32_t trials, int32_t factor);
// Returns a number that is larger for better values: minus infinity if the value is NaN.
double ScoreOf(const Definition& definition, double value);

enum class EntryKind {
  // These have happened.
  kReported,       // `trial` has told `value` at `step`, at its rung `rung`, which is not the last
  kHeld,           // the job of a paused trial holds no devices; its newest checkpoint is `step`
  kSucceeded,      // the job of `trial` has trained to its end; `value` at `step` is its last one,
                   // or NaN if it told none, of which `text` may say why
  kFailed,         // the job of `trial` has failed, or somebody has cancelled it; `text` says why
  kBudgetUsed,     // the trials have used the device time that they may use
  kStopRequested,  // somebody stops the sweep; `text` is who
  kCancelRequested,  // somebody cancels it; `text` is who, or empty
  kResumeRequested,  // somebody lets it go on; `text` is who
  kRetryRequested,   // somebody lets its failed trials run again; `text` is who
  // These were decided.
  kStarted,       // `trial` gets its first job
  kRestarted,     // `trial`, which had failed, gets a new job
  kContinued,     // `trial` trains on, or begins to, until `rung`
  kPaused,        // the job of `trial` is to be suspended
  kTrialStopped,  // the job of `trial` is to be cancelled: `text` says why
  kExploited,  // `trial` gets a new job that goes on from the checkpoint of trial `donor` at `step`
               // until `rung`; its old job is to be cancelled
  kEnded,      // the sweep has ended; `end` and `text` say how
};

enum class End { kNone, kSucceeded, kStopped, kFailed };

struct Entry {
  EntryKind kind = EntryKind::kReported;
  int32_t trial = 0;
  int32_t rung = 0;
  int64_t step = 0;
  double value = 0;       // NaN counts as the worst value
  bool can_pause = true;  // for kReported: the job can go on later from a checkpoint
  int32_t donor = -1;     // for kExploited
  End end = End::kNone;   // for kEnded
  std::string text = {};  // a sentence for people
  int64_t time_us = 0;    // wall time; nothing is decided by it

  // Two NaNs are equal here.
  friend bool operator==(const Entry& a, const Entry& b);
};

}  // namespace trainyard::core::sweeping
