// Counts which labels a vector of logits gets right, in the same way for every backend.
#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace trainyard::engine {

// The number of logits among which Evaluation::top5 looks for the label.
inline constexpr int64_t kTopCount = 5;

// Returns true if `label` is among the kTopCount largest of `logits` [classes]. Among equal logits
// the first ones come first. If the label's logit is NaN, the result is false. Other NaNs count as
// larger.
template <class T>
bool IsInTop(const T* logits, int64_t classes, int64_t label) {
  int64_t before = 0;
  for (int64_t k = 0; k < label; ++k) before += logits[k] < logits[label] ? 0 : 1;
  for (int64_t k = label + 1; k < classes; ++k) before += logits[k] <= logits[label] ? 0 : 1;
  return before < kTopCount;
}

// Counts the labels that are among them. logits is [labels, classes].
template <class T>
int64_t CountInTop(const T* logits, int64_t classes, absl::Span<const int32_t> labels) {
  int64_t count = 0;
  for (const int32_t label : labels) {
    count += IsInTop(logits, classes, label) ? 1 : 0;
    logits += classes;
  }
  return count;
}

}  // namespace trainyard::engine
