// Measures the store of metric points with one long job.
//
//   bench_metrics FOLDER [steps, 1500000]
// The job reports three metrics at each step and 26 others now and then, in chunks of 500 points.
// Figures are of processor time, except where several threads are busy.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "server/store/sqlite/sqlite_metrics_store.h"

namespace trainyard::store {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kChunk = 500;
constexpr size_t kSmallAppend = 3;
constexpr int kSmallAppends = 20'000;
constexpr int kRareMetrics = 26;
constexpr int64_t kRareSteps = 150;
constexpr int kRepeats = 5;
constexpr int kAtOnce = 8;
constexpr AttemptId kAttempt{JobId{1}, 1};
constexpr AttemptId kOther{JobId{2}, 1};

double Seconds(Clock::time_point since) {
  return std::chrono::duration<double>(Clock::now() - since).count();
}

// Returns the work of the processor, which other programs disturb less than the time that passes.
double ProcessorSeconds(std::clock_t since) {
  return static_cast<double>(std::clock() - since) / CLOCKS_PER_SEC;
}

void Row(const std::string& what, double value, const char* unit) {
  std::printf("| %s | %.3f %s |\n", what.c_str(), value, unit);
  std::fflush(stdout);
}

// Prints the median processor time of a call.
void Time(const std::string& what, const std::function<void()>& call) {
  std::vector<double> seconds;
  for (int i = 0; i < kRepeats; ++i) {
    const std::clock_t start = std::clock();
    call();
    seconds.push_back(ProcessorSeconds(start));
  }
  std::sort(seconds.begin(), seconds.end());
  Row(what, seconds[kRepeats / 2] * 1e3, "ms");
}

// Makes the points of a job in the order in which they arrive.
class Source {
 public:
  std::vector<MetricPoint> Take(size_t count) {
    std::vector<MetricPoint> points;
    while (points.size() < count) {
      if (waiting_.empty()) MakeStep();
      points.push_back(std::move(waiting_.back()));
      waiting_.pop_back();
    }
    return points;
  }
  int64_t step() const { return step_; }

 private:
  void MakeStep() {
    ++step_;
    const int64_t time_us = 1'790'000'000'000'000 + step_ * 731;
    const double value = 2.0 / static_cast<double>(step_ % 9973 + 1);
    for (const char* name : {"train.loss", "train.accuracy", "lr"}) {
      waiting_.push_back({step_, name, value, time_us});
    }
    if (step_ % kRareSteps != 0) return;
    for (int i = 0; i < kRareMetrics; ++i) {
      waiting_.push_back({step_, absl::StrCat("rare.", i), value * i, time_us});
    }
  }

  int64_t step_ = 0;
  std::vector<MetricPoint> waiting_;
};

int64_t Append(MetricsStore& store, AttemptId attempt, int64_t offset, Source& source,
               size_t count) {
  const auto end = offset + static_cast<int64_t>(count) * 60;
  TY_CHECK_OK(store.AppendPoints(attempt, 0, offset, source.Take(count), end).status());
  return end;
}

size_t Query(MetricsStore& store, const std::vector<std::string>& names, int64_t max_points) {
  const auto series = store.Query(kAttempt.job, names, {.max_points = max_points});
  TY_CHECK_OK(series.status());
  size_t points = 0;
  for (const auto& [name, found] : *series) points += found.size();
  return points;
}

void Fill(MetricsStore& store, int64_t steps) {
  Source source;
  int64_t offset = 0;
  int64_t points = 0;
  const std::clock_t start = std::clock();
  while (source.step() < steps) {
    offset = Append(store, kAttempt, offset, source, kChunk);
    points += kChunk;
  }
  const double seconds = ProcessorSeconds(start);
  Row("points", static_cast<double>(points) / 1e6, "million");
  Row("append, 500 points at a time", static_cast<double>(points) / seconds / 1e3,
      "thousand points/s");
  Source other;
  int64_t other_offset = 0;
  const std::clock_t small = std::clock();
  for (int i = 0; i < kSmallAppends; ++i) {
    other_offset = Append(store, kOther, other_offset, other, kSmallAppend);
  }
  Row("append, 3 points at a time", kSmallAppends / ProcessorSeconds(small) / 1e3,
      "thousand appends/s");
}

void Measure(MetricsStore& store) {
  Time("one long series, 10 points", [&] { Query(store, {"train.loss"}, 10); });
  Time("one long series, 2,000 points", [&] { Query(store, {"train.loss"}, 2000); });
  Time("one long series, the extremes of 1,000 stretches", [&] {
    const PointChoice choice = {.max_points = 2002, .keeps_extremes = true};
    TY_CHECK_OK(store.Query(kAttempt.job, {"train.loss"}, choice).status());
  });
  Time("one long series, all points", [&] { Query(store, {"train.loss"}, 0); });
  Time("a rare series, all points", [&] { Query(store, {"rare.7"}, 0); });
  Time("a name that does not exist", [&] { Query(store, {"no.such"}, 10); });
  Time("all series, 100 points each", [&] { Query(store, {}, 100); });
  Time("number of points", [&] { TY_CHECK_OK(store.CountPoints(kAttempt.job).status()); });
  Time("the newest 100 in order of arrival", [&] {
    const auto page =
        store.ReadAfter(kAttempt.job, {}, *store.CountPoints(kAttempt.job) - 100, 1000);
    TY_CHECK(page.ok() && page->points.size() == 100);
  });
  std::vector<std::thread> clients;
  const auto start = Clock::now();
  for (int i = 0; i < kAtOnce; ++i) {
    clients.emplace_back([&] { Query(store, {"train.loss"}, 10); });
  }
  for (std::thread& client : clients) client.join();
  Row("8 queries of 10 points at once, until the last is answered", Seconds(start) * 1e3, "ms");
}

int Main(int argc, char** argv) {
  int64_t steps = 1'500'000;
  if (argc < 2 || argc > 3 || (argc == 3 && !absl::SimpleAtoi(argv[2], &steps))) {
    std::fprintf(stderr, "usage: bench_metrics FOLDER [STEPS]\n");
    return 2;
  }
  const std::string path = absl::StrCat(argv[1], "/metrics.db");
  const bool is_new = !std::filesystem::exists(path);
  const auto start = Clock::now();
  auto store = OpenSqliteMetricsStore(path);
  TY_CHECK_OK(store.status());
  std::printf("| what was measured | |\n|---|---|\n");
  Row("open", Seconds(start), "s");
  if (is_new) Fill(**store, steps);
  Measure(**store);
  Row("size of the file", static_cast<double>(std::filesystem::file_size(path)) / 1e6, "MB");
  const auto deleting = Clock::now();
  TY_CHECK_OK((*store)->DeleteJob(kOther.job));
  Row("delete the other job", Seconds(deleting) * 1e3, "ms");
  return 0;
}

}  // namespace
}  // namespace trainyard::store

int main(int argc, char** argv) {
  return trainyard::store::Main(argc, argv);
}
