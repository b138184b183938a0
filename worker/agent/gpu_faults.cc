// Judges a GPU by the history of its readings.
#include "worker/agent/gpu_faults.h"

#include "absl/strings/str_cat.h"
#include "worker/agent/gpu_facts.h"

namespace trainyard::agent {

void GpuFaults::Forget() {
  happened_.clear();
  ends_ranks_ = false;
  uncorrected_.reset();
}

bool GpuFaults::Take(const absl::StatusOr<GpuReading>& reading) {
  const absl::Status& status = reading.status();
  if (absl::IsNotFound(status) || absl::IsDataLoss(status)) {
    is_away_ = true;
    shown_ = absl::IsNotFound(status)
                 ? "the GPU is gone: the driver no longer lists it"
                 : "the driver has lost the GPU; reset it, or replace it if that returns";
    return false;
  }
  if (!status.ok()) {
    if (++unreadable_looks_ >= kUnreadableLooksMax) {
      shown_ = absl::StrCat("the driver does not answer for it: ", status.message());
    }
    return false;
  }
  unreadable_looks_ = 0;
  const bool is_back = is_away_;
  // It cannot have been away without a reset.
  if (is_back) Forget();
  is_away_ = false;
  shown_.clear();
  if (reading->has_remap_failed.value_or(false)) {
    shown_ = "failed memory has no spare rows left; replace the GPU";
  } else if (reading->is_remap_pending.value_or(false) ||
             reading->is_retirement_pending.value_or(false)) {
    shown_ = "failed memory waits to be replaced by spare memory; reset the GPU";
  }
  if (reading->uncorrected_ecc_errors.has_value()) TakeErrors(*reading->uncorrected_ecc_errors);
  return is_back;
}

void GpuFaults::TakeErrors(int64_t uncorrected) {
  // The counter started again because the driver was loaded again, or the GPU was reset.
  if (uncorrected_.has_value() && uncorrected < *uncorrected_) Forget();
  if (!uncorrected_.has_value()) uncorrected_ = uncorrected;
  const int64_t more = uncorrected - *uncorrected_;
  if (more == 0) return;
  ends_ranks_ = true;
  // An Xid says more than a number.
  if (happened_.empty()) {
    happened_ = absl::StrCat(more, more == 1 ? " memory error" : " memory errors",
                             " beyond correction; reset the GPU");
  }
}

void GpuFaults::TakeXid(int64_t xid) {
  const XidMeaning* meaning = HardwareXid(xid);
  if (meaning == nullptr) return;
  // The first error is the cause of those that follow, unless it was only a warning.
  if (happened_.empty() || (meaning->ends_ranks && !ends_ranks_)) {
    happened_ = absl::StrCat("Xid ", xid, ": ", meaning->what, "; ", meaning->remedy);
  }
  ends_ranks_ = ends_ranks_ || meaning->ends_ranks;
}

const std::string& GpuFaults::reason() const {
  if (happened_.empty()) return shown_;
  // Its absence weighs more than an earlier warning.
  return is_away_ && !ends_ranks_ ? shown_ : happened_;
}

}  // namespace trainyard::agent
