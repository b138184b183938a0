#include "worker/trainer/device_exchange.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/env.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "worker/trainer/agreement.h"

namespace trainyard::trainer {
namespace {

using parallel::Bucket;
using parallel::CommEvent;

class DeviceExchange final : public parallel::GradientExchange {
 public:
  explicit DeviceExchange(const DeviceExchangeOptions& options)
      : options_(options), bucket_{0, static_cast<int64_t>(options.arena.size())} {}

  absl::Span<const Bucket> buckets() const override { return {&bucket_, 1}; }
  bool is_sharded() const override { return false; }
  Bucket OwnBlock(size_t) const override { return bucket_; }

  absl::Status SetPlan(const parallel::ExchangePlan& plan, absl::Span<const int>) override {
    for (const int terms : plan.terms) {
      if (terms == 1) continue;
      return absl::UnimplementedError(
          absl::StrCat(terms, " terms of a rank; sums of a device's memory take one a rank"));
    }
    return absl::OkStatus();
  }
  void set_timeout(absl::Duration timeout) override {
    options_.host->set_timeout(timeout);
    options_.arena_communicator->set_timeout(timeout);
  }
  void set_tracing(bool traces) override { traces_ = traces; }

  absl::Status Begin(int64_t step, absl::Span<const double> ballot) override {
    step_ = step;
    ballot_.assign(ballot.begin(), ballot.end());
    stats_ = {};
    return absl::OkStatus();
  }
  absl::Status Ready(int64_t end) override {
    is_ready_ = end == bucket_.end;
    return absl::OkStatus();
  }
  absl::Status Land(size_t) override {
    TY_CHECK(is_ready_);
    TY_RETURN_IF_ERROR(options_.synchronize());
    const absl::Duration begin = Clock::Real()->Uptime();
    TY_RETURN_IF_ERROR(Annotate(options_.arena_communicator->AllReduce(options_.arena), Where()));
    const int64_t ranks = options_.host->world_size();
    Count({.kind = CommEvent::Kind::kReduce,
           .bucket = 0,
           .begin = begin,
           .end = Clock::Real()->Uptime(),
           .bytes = 2 * (ranks - 1) * bucket_.size() / ranks * int64_t{sizeof(float)}});
    return absl::OkStatus();
  }
  absl::Status Share(size_t) override { return absl::OkStatus(); }

  absl::Status Finish(absl::Span<double> ballots) override {
    is_ready_ = false;
    const absl::Duration begin = Clock::Real()->Uptime();
    const auto all = GatherNumbers(*options_.host, ballot_);
    if (!all.ok()) return Annotate(all.status(), Where());
    std::copy(all->begin(), all->end(), ballots.begin());
    Count({.kind = CommEvent::Kind::kWait,
           .bucket = 1,
           .begin = begin,
           .end = Clock::Real()->Uptime(),
           .bytes = static_cast<int64_t>(ballot_.size() * sizeof(double))});
    return absl::OkStatus();
  }
  const parallel::CommStats& stats() const override { return stats_; }

  absl::Status GatherBlocks(absl::Span<float>) override { return absl::OkStatus(); }

 private:
  std::string Where() const { return absl::StrCat("step ", step_); }

  // Nothing of it is hidden: the device waits.
  void Count(const CommEvent& event) {
    stats_.total += event.end - event.begin;
    stats_.exposed += event.end - event.begin;
    stats_.bytes_sent += event.bytes;
    if (traces_) stats_.events.push_back(event);
  }

  const DeviceExchangeOptions options_;
  const Bucket bucket_;
  int64_t step_ = 0;
  std::vector<double> ballot_;
  bool is_ready_ = false;
  bool traces_ = false;
  parallel::CommStats stats_;
};

}  // namespace

std::unique_ptr<parallel::GradientExchange> MakeDeviceExchange(
    const DeviceExchangeOptions& options) {
  return std::make_unique<DeviceExchange>(options);
}

}  // namespace trainyard::trainer
