// Defines the state of one trial of a sweep.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace trainyard::core::sweeping {

enum class TrialStatus { kActive, kPaused, kStopped, kSucceeded, kFailed };

struct Report {
  int64_t step = 0;
  double value = 0;
};

struct Trial {
  TrialStatus status = TrialStatus::kActive;
  // The number of the trial's job, from 0: kRestarted and kExploited begin the next one. Reports
  // and values belong to the trial and stay, except that kRestarted forgets them.
  int32_t generation = 0;
  int32_t rung = 0;                   // it trains until this rung
  std::map<int32_t, Report> reports;  // by rung
  std::optional<Report> last;         // the newest of all
  // For a paused trial: the step of the newest checkpoint of its job, once it holds no devices.
  std::optional<int64_t> held_step;
  bool can_pause = true;
  int32_t copied_from = -1;  // the donor of its newest job
  std::string failure;       // why it has failed, or why it has succeeded without a value
  int32_t failures = 0;
  bool is_to_restart = false;  // it has failed, and somebody lets it run again
  // The places of its first and its newest value among all values that were told, from 1.
  int64_t first_told = 0;
  int64_t last_told = 0;

  bool has_ended() const {
    return status != TrialStatus::kActive && status != TrialStatus::kPaused;
  }
  // Returns true if it has told its value at the rung until which it trains.
  bool has_reported() const { return reports.contains(rung); }
  // Returns true if it was paused on its way to its rung, by somebody who stopped the sweep.
  bool is_interrupted() const { return status == TrialStatus::kPaused && !has_reported(); }
};

}  // namespace trainyard::core::sweeping
