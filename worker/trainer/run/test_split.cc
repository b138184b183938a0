// Loads the test split in the background. Loading it before the training would delay the first
// step, and loading it at the first evaluation would delay that.
#include "worker/trainer/run/test_split.h"

#include <chrono>

#include "common/base/status_macros.h"
#include "worker/data/open_dataset.h"

namespace trainyard::trainer {

absl::Status TestSplit::Poll() {
  if (loaded_ != nullptr) return absl::OkStatus();
  if (!loading_.valid()) {
    loading_ = std::async(std::launch::async, [this] {
      return data::OpenDataset(dataset_, data::Split::kTest, options_);
    });
  }
  if (loading_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    return absl::OkStatus();
  }
  return Get().status();
}

absl::StatusOr<const data::Dataset*> TestSplit::Get() {
  if (loaded_ == nullptr && loading_.valid()) {
    TY_ASSIGN_OR_RETURN(loaded_, loading_.get());
  } else if (loaded_ == nullptr) {
    TY_ASSIGN_OR_RETURN(loaded_, data::OpenDataset(dataset_, data::Split::kTest, options_));
  }
  return loaded_.get();
}

}  // namespace trainyard::trainer
