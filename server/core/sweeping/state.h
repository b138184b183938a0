// Computes the state of a sweep from its record.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "server/core/sweeping/copies.h"
#include "server/core/sweeping/record.h"
#include "server/core/sweeping/trial.h"

namespace trainyard::core::sweeping {

// The state. Trials are in order of their indices: those that have begun. A sweep that has ended
// goes on if somebody lets its failed trials run again. It is then reopened: no other trials begin,
// and patience and values of before do not end it.
class State {
 public:
  explicit State(Definition definition) : definition_(std::move(definition)) {}

  // Takes an entry over. An entry that makes no sense (about a trial that has not begun, or that
  // has ended; a second report for a rung; a start without a free place; a request that would
  // change nothing) changes nothing, and the result is then false: reports that come twice are
  // harmless. kRetryRequested makes no sense once the budget is used.
  bool Apply(const Entry& entry);

  const Definition& definition() const { return definition_; }
  const std::vector<Trial>& trials() const { return trials_; }
  bool has_ended() const { return end_ != End::kNone; }
  End end() const { return end_; }
  const std::string& end_text() const { return end_text_; }
  // True between kStopRequested and kResumeRequested.
  bool is_stopping() const { return is_stopping_; }
  bool is_cancelling() const { return is_cancelling_; }
  // Returns the text of kCancelRequested.
  const std::string& cancelled_by() const { return cancelled_by_; }
  bool is_budget_used() const { return is_budget_used_; }
  // Returns true while trials are left that somebody lets run again.
  bool is_retrying() const;
  bool is_reopened() const { return is_reopened_; }
  // Returns true if no trial is left that may begin.
  bool have_all_begun() const;
  // Returns the number of active trials; each occupies a place.
  int32_t active() const { return active_; }
  bool has_free_place() const { return active_ < definition_.concurrent; }
  // Returns the index of the best trial, by the last value of each; -1 if none has a value that is
  // a number. Of equal ones, it is the first that told it.
  int32_t best() const { return best_; }
  // The number of trials that have told their first value since the best value was told.
  int32_t trials_since_best() const { return trials_since_best_; }
  // Returns the index of the trial that was the first to reach the target; -1 if none has.
  int32_t reached_target() const { return reached_target_; }

  // For kPbt: the last generation that was complete, for which it has been decided who copies whom;
  // -1 at first.
  int32_t settled() const { return settled_; }
  // Returns the copies after that generation that are still to be made.
  const std::vector<Copy>& copies() const { return copies_; }
  // Returns true if the copy can be made: its donor is still held where it was.
  bool IsPossible(const Copy& copy) const;

  // Returns true if the value `a` is better than `b`. NaN is worse than every number, and infinite
  // values on the bad side are like it.
  bool IsBetter(double a, double b) const;

 private:
  bool ApplyToSweep(const Entry& entry);
  bool ApplyToTrial(const Entry& entry, Trial& trial);
  bool TakeReport(const Entry& entry, Trial& trial);
  bool Start(const Entry& entry);
  bool Continue(const Entry& entry, Trial& trial);
  bool Exploit(const Entry& entry, Trial& trial);
  bool Retry();
  // Begins the trial's next job.
  void Renew(Trial& trial, int32_t rung);
  void SetStatus(Trial& trial, TrialStatus status);
  void Tell(int32_t index, const Entry& entry);
  void FindBest();
  // Decides who copies whom if all trials that have not ended are held at the same rung.
  void SettleGeneration();
  bool may_start() const { return has_free_place() && !is_stopping_ && !is_cancelling_; }
  int32_t last_rung() const { return RungCount(definition_) - 1; }

  const Definition definition_;
  std::vector<Trial> trials_;
  int32_t active_ = 0;
  End end_ = End::kNone;
  std::string end_text_;
  bool is_stopping_ = false;
  bool is_cancelling_ = false;
  std::string cancelled_by_;
  bool is_budget_used_ = false;
  bool is_reopened_ = false;
  int32_t best_ = -1;
  int32_t trials_since_best_ = 0;
  int32_t reached_target_ = -1;
  int64_t told_ = 0;  // the number of values that were told
  int32_t settled_ = -1;
  std::vector<Copy> copies_;
};

}  // namespace trainyard::core::sweeping
