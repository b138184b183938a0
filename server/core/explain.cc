#include "server/core/explain.h"

#include <utility>

namespace trainyard::core {
namespace {

class FullRecord : public PassRecord {
 public:
  explicit FullRecord(std::unique_ptr<const PassState> state) : state_(std::move(state)) {}

  std::vector<std::string> Reasons(const PassInput& input, JobId job) const override {
    const QueuedJob* queued = input.queue.Find(job);
    if (queued == nullptr) return {};
    return queued->holds;
  }
  Explanation Explain(const PassInput&, const QueuedJob& job) const override {
    Explanation explanation;
    explanation.reasons = job.holds;
    return explanation;
  }

 private:
  std::unique_ptr<const PassState> state_;
};

}  // namespace

std::shared_ptr<const PassRecord> MakeRecord(const PassInput&,
                                             std::unique_ptr<const PassState> state) {
  return std::make_shared<FullRecord>(std::move(state));
}

}  // namespace trainyard::core
