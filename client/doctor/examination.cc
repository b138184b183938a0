// Shares the outcome between the thread that looks and the one that waits, so that neither needs
// the other to live.
#include "client/doctor/examination.h"

#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/duration.h"

namespace trainyard::doctor {

struct Examination::Outcome {
  std::mutex mutex;
  std::optional<Findings> findings;
};

Examination::Examination(std::string title, std::function<Findings()> look)
    : title_(std::move(title)), outcome_(std::make_shared<Outcome>()) {
  std::thread([outcome = outcome_, look = std::move(look)] {
    Findings findings = look();
    const std::lock_guard<std::mutex> lock(outcome->mutex);
    outcome->findings = std::move(findings);
  }).detach();
}

bool Examination::is_over() const {
  const std::lock_guard<std::mutex> lock(outcome_->mutex);
  return outcome_->findings.has_value();
}

Findings Examination::Take(absl::Duration patience) const {
  const std::lock_guard<std::mutex> lock(outcome_->mutex);
  if (outcome_->findings.has_value()) return *outcome_->findings;
  return {Problem(
      title_, absl::StrCat("Looking at this took longer than ", DurationText(patience), "."),
      "A file system that hangs is the usual cause: `mount`, `df` and `dmesg` tell of it.")};
}

}  // namespace trainyard::doctor
