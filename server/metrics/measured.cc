// The wrappers add nothing to what they wrap but the time.
#include "server/metrics/measured.h"

#include <utility>

namespace trainyard::metrics {
namespace {

// A pass over a queue of thousands of jobs takes tens of milliseconds; a commit takes as long as
// the disk needs to be sure.
const prometheus::Histogram::BucketBoundaries kWriterBounds = {0.0001, 0.0005, 0.002, 0.01,
                                                               0.05,   0.2,    1,     5};

prometheus::Histogram& OneHistogram(prometheus::Registry& registry, const char* name,
                                    const char* help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({},
                                                                                   kWriterBounds);
}

class TimedPolicy : public core::Policy {
 public:
  TimedPolicy(std::unique_ptr<const core::Policy> policy, Clock& clock,
              prometheus::Histogram& durations)
      : policy_(std::move(policy)), clock_(clock), durations_(durations) {}

  core::Plan MakePlan(const core::PassInput& input) const override {
    const absl::Duration began = clock_.Uptime();
    core::Plan plan = policy_->MakePlan(input);
    durations_.Observe(absl::ToDoubleSeconds(clock_.Uptime() - began));
    return plan;
  }

 private:
  const std::unique_ptr<const core::Policy> policy_;
  Clock& clock_;
  prometheus::Histogram& durations_;
};

class TimedStore : public store::Store {
 public:
  TimedStore(store::Store& store, Clock& clock, prometheus::Histogram& durations,
             prometheus::Counter& failures)
      : store_(store), clock_(clock), durations_(durations), failures_(failures) {}

  absl::StatusOr<core::Snapshot> Load() override { return store_.Load(); }

  absl::Status Commit(const core::Delta& delta) override {
    const absl::Duration began = clock_.Uptime();
    const absl::Status status = store_.Commit(delta);
    if (!status.ok()) {
      failures_.Increment();
      return status;
    }
    durations_.Observe(absl::ToDoubleSeconds(clock_.Uptime() - began));
    return status;
  }

  absl::StatusOr<std::vector<core::EventRecord>> ListEvents(absl::string_view parent,
                                                            int64_t after_sequence,
                                                            int64_t limit) override {
    return store_.ListEvents(parent, after_sequence, limit);
  }

 private:
  store::Store& store_;
  Clock& clock_;
  prometheus::Histogram& durations_;
  prometheus::Counter& failures_;
};

}  // namespace

Measures::Measures(prometheus::Registry& registry, Clock& clock)
    : clock_(clock),
      passes_(OneHistogram(registry, "trainyard_scheduling_pass_duration_seconds",
                           "The time that the scheduler took to make a plan.")),
      commits_(OneHistogram(registry, "trainyard_commit_duration_seconds",
                            "The time that a commit to the database took until it was durable.")),
      failed_commits_(prometheus::BuildCounter()
                          .Name("trainyard_commit_failures_total")
                          .Help("The number of commits that failed, most often because the disk "
                                "was full.")
                          .Register(registry)
                          .Add({})) {}

std::unique_ptr<const core::Policy> Measures::MeasuredPolicy() const {
  return std::make_unique<TimedPolicy>(core::MakePolicy(), clock_, passes_);
}

std::unique_ptr<store::Store> Measures::MeasuredStore(store::Store& store) const {
  return std::make_unique<TimedStore>(store, clock_, commits_, failed_commits_);
}

}  // namespace trainyard::metrics
