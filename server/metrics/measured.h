// Measures what the writer does: the passes of the scheduler and the commits. Both wrap the port
// that the writer uses, so the pure code needs no clock.
#pragma once

#include <memory>

#include "common/base/env.h"
#include "prometheus/counter.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "server/core/scheduling/policy.h"
#include "server/store/store.h"

namespace trainyard::metrics {

// Makes policies and stores that note how long they take. It is thread-safe, and borrows the
// registry and the clock.
class Measures {
 public:
  Measures(prometheus::Registry& registry, Clock& clock);

  // Returns the full policy.
  std::unique_ptr<const core::Policy> MeasuredPolicy() const;
  // `store` is borrowed.
  std::unique_ptr<store::Store> MeasuredStore(store::Store& store) const;

 private:
  Clock& clock_;
  prometheus::Histogram& passes_;
  prometheus::Histogram& commits_;
  prometheus::Counter& failed_commits_;
};

}  // namespace trainyard::metrics
