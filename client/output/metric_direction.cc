// Tells by the words in a metric's name, since programs may call their metrics as they like.
#include "client/output/metric_direction.h"

#include "absl/strings/match.h"

namespace trainyard::output {

bool IsLargerBetter(absl::string_view metric) {
  for (const char* word : {"accuracy", "top5", "top1", "f1", "auc", "bleu", "iou", "reward",
                           "_per_s", "per_second", "throughput"}) {
    if (absl::StrContains(metric, word)) return true;
  }
  return false;
}

}  // namespace trainyard::output
