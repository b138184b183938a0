// Takes means over many steps, without those in which a host was busy with something else, and asks
// the solver of hostings when they have changed.
#include "worker/trainer/run/hosting_watch.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"

namespace trainyard::trainer {
namespace {

// A reason names at most this many ranks, to stay on one line.
constexpr size_t kRanksTold = 8;
// A step that took this many medians met a busy moment of its host. Shorter ones count, because a
// device that others share works in slices: at full speed in most steps, and in some not at all for
// a while.
constexpr double kBusyMoment = 8;

double MeanWithoutBusyMoments(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  const double most = kBusyMoment * *middle;
  double sum = 0;
  int64_t count = 0;
  for (const double value : values) {
    if (value > most) continue;
    sum += value;
    ++count;
  }
  return sum / static_cast<double>(count);
}

}  // namespace

using parallel::Hosting;

HostingWatch::HostingWatch(HostingWatchOptions options) : options_(std::move(options)) {
  const auto ranks = static_cast<int>(options_.hosting.size());
  TY_CHECK(ranks >= 1 && options_.replicas >= ranks && options_.rows > 0);
}

void HostingWatch::Add(absl::Span<const Ballot> ballots) {
  TY_CHECK(ballots.size() == options_.hosting.size());
  std::vector<double> seconds;
  double longest = 0;
  for (const Ballot& ballot : ballots) {
    // A small last batch leaves some ranks without rows, and says nothing about the others either.
    if (ballot.computed_rows <= 0 || ballot.compute_seconds <= 0) return;
    seconds.push_back(ballot.compute_seconds / static_cast<double>(ballot.computed_rows));
    longest = std::max(longest, ballot.compute_seconds);
  }
  if (skipped_steps_ < options_.warm_up_steps) {
    ++skipped_steps_;
    return;
  }
  samples_.push_back({.step = ballots[0].computed_step, .seconds = std::move(seconds)});
  measured_seconds_ += longest;
  if (static_cast<int64_t>(samples_.size()) > options_.window_steps) samples_.pop_front();
}

std::vector<double> HostingWatch::Seconds() const {
  std::vector<double> means;
  for (size_t rank = 0; rank < options_.hosting.size(); ++rank) {
    std::vector<double> values;
    for (const Sample& sample : samples_) values.push_back(sample.seconds[rank]);
    means.push_back(MeanWithoutBusyMoments(std::move(values)) * options_.rows);
  }
  return means;
}

bool HostingWatch::HasDrifted(const std::vector<double>& seconds) const {
  for (size_t rank = 0; rank < seconds.size(); ++rank) {
    if (std::abs(seconds[rank] / solved_[rank] - 1) > options_.drift) return true;
  }
  return false;
}

bool HostingWatch::HasRoom(const Hosting& hosting) {
  for (size_t rank = 0; rank < options_.room.size(); ++rank) {
    const int count = hosting[rank].end - hosting[rank].begin;
    if (count <= options_.room[rank]) continue;
    absl::StrAppend(&options_.reason, "; rank ", rank, " has no memory for ", count, " replicas");
    return false;
  }
  return true;
}

std::optional<Hosting> HostingWatch::Decide(bool is_boundary) {
  const bool is_free = options_.replicas > static_cast<int>(options_.hosting.size());
  const bool is_measured = static_cast<int64_t>(samples_.size()) >= options_.measured_steps &&
                           measured_seconds_ >= options_.measured_seconds;
  if (!is_measured || (!solved_.empty() && !is_boundary)) return std::nullopt;
  std::vector<double> seconds = Seconds();
  if (!solved_.empty() && !HasDrifted(seconds)) return std::nullopt;
  solved_ = std::move(seconds);
  options_.reason = SpeedText();
  if (!is_free) {
    absl::StrAppend(&options_.reason, "; ", options_.replicas,
                    " replicas, one a rank, cannot be hosted otherwise");
    return std::nullopt;
  }
  Hosting solved = parallel::SolveHosting(options_.replicas, solved_);
  const double now = parallel::StepSeconds(options_.hosting, solved_);
  const double then = parallel::StepSeconds(solved, solved_);
  if (solved == options_.hosting) return std::nullopt;
  if (then > now * (1 - options_.saving)) {
    absl::StrAppend(&options_.reason, "; moving replicas would save too little");
    return std::nullopt;
  }
  if (!HasRoom(solved)) return std::nullopt;
  options_.hosting = solved;
  samples_.clear();
  skipped_steps_ = 0;
  measured_seconds_ = 0;
  ++changes_;
  return solved;
}

std::string HostingWatch::SpeedText() const {
  std::vector<std::string> speeds;
  for (size_t rank = 0; rank < std::min(solved_.size(), kRanksTold); ++rank) {
    speeds.push_back(
        absl::StrCat("rank ", rank, " ", std::llround(options_.rows / solved_[rank]), "/s"));
  }
  if (solved_.size() > kRanksTold) {
    speeds.push_back(absl::StrCat("and ", solved_.size() - kRanksTold, " more"));
  }
  return absl::StrCat("speeds of steps ", samples_.front().step, " to ", samples_.back().step, ": ",
                      absl::StrJoin(speeds, ", "));
}

std::vector<run_dir::RankHosting> HostingWatch::Records() const {
  std::vector<run_dir::RankHosting> records;
  for (size_t rank = 0; rank < options_.hosting.size(); ++rank) {
    const parallel::ReplicaRange& range = options_.hosting[rank];
    records.push_back({.rank = static_cast<int>(rank),
                       .first_replica = range.begin,
                       .replicas = range.end - range.begin,
                       .samples_per_s = solved_.empty() ? 0 : options_.rows / solved_[rank]});
  }
  return records;
}

}  // namespace trainyard::trainer
