// Tests batch norm over the rows of all ranks (CompileOptions::sum_statistics). Ranks, each a
// thread with an executable of its own, must give the same results as one executable that has all
// rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cmath>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/backend/rank_statistics.h"
#include "worker/engine/graph/graph_builder.h"
#include "worker/engine/make_backend.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine {
namespace {

using testing::Compile;
using ::testing::HasSubstr;
using testing::TestBatch;
using testing::Values;

// Sums over threads that all call it.
class ThreadSum {
 public:
  explicit ThreadSum(int ranks) : barrier_(ranks) {}

  SumOverRanks ForRank(std::atomic<int>* calls = nullptr) {
    return [this, calls](absl::Span<double> values) {
      if (calls != nullptr) ++*calls;
      {
        const std::lock_guard lock(mutex_);
        sum_.resize(values.size(), 0);
        is_equal_ = is_equal_ && sum_.size() == values.size();
        for (size_t i = 0; i < values.size(); ++i) sum_[i] += values[i];
      }
      barrier_.arrive_and_wait();
      std::copy(sum_.begin(), sum_.end(), values.begin());
      barrier_.arrive_and_wait();
      {
        const std::lock_guard lock(mutex_);
        sum_.clear();
      }
      barrier_.arrive_and_wait();
      return absl::OkStatus();
    };
  }

  // Returns true if all ranks brought as many values each time.
  bool is_equal() const { return is_equal_; }

 private:
  std::barrier<> barrier_;
  std::mutex mutex_;
  std::vector<double> sum_;
  bool is_equal_ = true;
};

void RunRanks(int ranks, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

CompileOptions OptionsOfRank(CompileOptions options, ThreadSum& sum, int rank, int ranks,
                             std::atomic<int>* calls = nullptr) {
  options.sum_statistics = sum.ForRank(calls);
  options.statistics_rank = rank;
  options.statistics_ranks = ranks;
  return options;
}

Graph SmallConvnet() {
  return *BuildConvnet({.input = {2, 9, 9}, .channels = {4, 6}, .classes = 5, .batch_norm = true});
}

class StatisticsOfRanks : public ::testing::TestWithParam<std::string> {
 protected:
  double Tolerance() const { return GetParam() == "reference_f64" ? 1e-6 : 2e-5; }

  // Compares ranks with these numbers of rows (0 means that a rank only takes part) with a single
  // rank that has all rows.
  void Compare(const Graph& model, const std::vector<std::vector<int64_t>>& steps,
               CompileOptions options, double tolerance) {
    options.max_rows = 8;
    const int ranks = static_cast<int>(steps[0].size());
    const std::unique_ptr<Executable> whole =
        Compile(GetParam(), model, {.momentum = 0.9}, options);
    testing::RandomizeState(5, *whole);
    ThreadSum sum(ranks);
    std::vector<std::unique_ptr<Executable>> executables(static_cast<size_t>(ranks));
    // Each rank compiles in a thread of its own, so that they share nothing which needs one thread.
    RunRanks(ranks, [&](int rank) {
      executables[static_cast<size_t>(rank)] =
          Compile(GetParam(), model, {.momentum = 0.9}, OptionsOfRank(options, sum, rank, ranks));
    });
    for (const auto& executable : executables) testing::CopyState(*whole, *executable);
    for (size_t step = 0; step < steps.size(); ++step) {
      SCOPED_TRACE(absl::StrCat("step ", step));
      int64_t rows = 0;
      for (const int64_t of_rank : steps[step]) rows += of_rank;
      const TestBatch batch = testing::RandomBatch(step, model, rows);
      ASSERT_TRUE(whole->Accumulate(batch.batch(), 1, nullptr).ok());
      RunRanks(ranks, [&](int rank) {
        int64_t begin = 0;
        for (int before = 0; before < rank; ++before) {
          begin += steps[step][static_cast<size_t>(before)];
        }
        const int64_t mine = steps[step][static_cast<size_t>(rank)];
        Executable& executable = *executables[static_cast<size_t>(rank)];
        const absl::Status status =
            mine == 0 ? executable.TakePartInStatistics(nullptr)
                      : executable.Accumulate(batch.Rows(begin, begin + mine).batch(),
                                              static_cast<double>(mine) / static_cast<double>(rows),
                                              nullptr);
        EXPECT_TRUE(status.ok()) << status;
      });
      EXPECT_TRUE(sum.is_equal());
      Values reduced(whole->reduction().size(), 0);
      for (const auto& executable : executables) {
        const Values part = testing::ReadReduction(*executable);
        for (size_t i = 0; i < reduced.size(); ++i) reduced[i] += part[i];
      }
      testing::ExpectNear(reduced, testing::ReadReduction(*whole), tolerance, "reduction");
      ASSERT_TRUE(whole->Update(0.01).ok());
      for (const auto& executable : executables) {
        testing::WriteReduction(*executable, reduced);
        ASSERT_TRUE(executable->Update(0.01).ok());
        testing::ExpectNear(testing::ReadAllState(*executable), testing::ReadAllState(*whole),
                            tolerance);
        testing::CopyState(*whole, *executable);
      }
    }
  }
};

TEST_P(StatisticsOfRanks, AreThoseOfAllRows) {
  const std::vector<std::pair<std::string, PassOptions>> passes = {
      {"all passes", {}},
      {"no pass", testing::kNoPasses},
      {"recomputed activations", {.recompute = true}},
      {"norms that are kept", {.recompute_norms = false}}};
  for (const auto& [name, options] : passes) {
    SCOPED_TRACE(name);
    for (const Graph& model : {SmallConvnet(), testing::Residuals(6), testing::Residuals(16),
                               testing::Inceptions({16, 24, 16, 20})}) {
      // Unequal rows, fewer in a last batch, then as before.
      Compare(model, {{5, 3}, {1, 4}, {5, 3}}, {.passes = options}, Tolerance());
    }
  }
}

TEST_P(StatisticsOfRanks, CountARankWithoutRows) {
  Compare(SmallConvnet(), {{3, 1, 2}, {2, 0, 1}, {0, 0, 4}, {3, 1, 2}}, {}, Tolerance());
  Compare(testing::Residuals(8), {{3, 1, 2}, {2, 0, 1}}, {.passes = {.recompute = true}},
          Tolerance());
}

TEST_P(StatisticsOfRanks, OfManyPixelsAreThoseOfAllRows) {
  const Graph model =
      *BuildConvnet({.input = {1, 38, 38}, .channels = {9, 4}, .classes = 5, .batch_norm = true});
  Compare(model, {{4, 3}, {2, 0}}, {}, Tolerance());
}

TEST_P(StatisticsOfRanks, OfOneRankAreItsOwn) {
  Compare(testing::Residuals(8), {{4}, {8}}, {}, Tolerance());
}

// A single value per channel on each rank: batch_norm over (a - m, b - m) / sqrt(v + eps), by hand.
TEST_P(StatisticsOfRanks, OfOneValueEachFollowTheFormula) {
  GraphBuilder builder({1, 1, 1});
  builder.SoftmaxCrossEntropy(
      builder.Linear("fc", builder.Flatten(builder.BatchNorm("bn", builder.input())), 2, false));
  const Graph model = *std::move(builder).Build();
  ThreadSum sum(2);
  const Values inputs = {3, 7};
  const std::vector<int32_t> labels = {0, 1};
  std::vector<Inspection> inspections(2);
  std::vector<Values> gradients(2);
  RunRanks(2, [&](int rank) {
    const auto at = static_cast<size_t>(rank);
    const std::unique_ptr<Executable> executable =
        Compile(GetParam(), model, {}, OptionsOfRank({.inspect = true}, sum, rank, 2));
    testing::WriteState(*executable, "bn.weight", {2});
    testing::WriteState(*executable, "bn.bias", {0.5f});
    testing::WriteState(*executable, "fc.weight", {1, -1});
    const Batch batch = {absl::MakeConstSpan(inputs).subspan(at, 1),
                         absl::MakeConstSpan(labels).subspan(at, 1)};
    EXPECT_TRUE(executable->Accumulate(batch, 0.5, nullptr).ok());
    inspections[at] = *executable->Inspect();
    gradients[at] = testing::Gradients(model, *executable)["bn.weight"];
  });
  const double inverse = 1 / std::sqrt(4 + 1e-5);  // mean 5, variance 4
  double dy[2];
  double xhat[2];
  double mean_dy = 0;
  double mean_dy_xhat = 0;
  for (size_t i = 0; i < 2; ++i) {
    xhat[i] = (static_cast<double>(inputs[i]) - 5) * inverse;
    const double y = 2 * xhat[i] + 0.5;
    EXPECT_NEAR(inspections[i].logits[0], y, 1e-5);
    EXPECT_NEAR(inspections[i].logits[1], -y, 1e-5);
    // Logits y and -y: the gradient of -log p(label) by y, weighted by a half.
    const double p = 1 / (1 + std::exp(-2 * y));
    dy[i] = 0.5 * 2 * (labels[i] == 0 ? p - 1 : p);
    mean_dy += dy[i] / 2;
    mean_dy_xhat += dy[i] * xhat[i] / 2;
  }
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(inspections[i].input_gradient[0],
                2 * inverse * (dy[i] - mean_dy - xhat[i] * mean_dy_xhat), 1e-5);
    EXPECT_NEAR(gradients[i][0], dy[i] * xhat[i], 1e-5);
  }
}

TEST_P(StatisticsOfRanks, AreNotAskedForByEvaluations) {
  ThreadSum sum(1);
  std::atomic<int> calls = 0;
  const Graph model = SmallConvnet();
  const std::unique_ptr<Executable> executable =
      Compile(GetParam(), model, {}, OptionsOfRank({.max_rows = 2}, sum, 0, 1, &calls));
  testing::RandomizeState(5, *executable);
  const TestBatch batch = testing::RandomBatch(1, model, 2);
  ASSERT_TRUE(executable->Evaluate(batch.batch()).ok());
  ASSERT_TRUE(executable->Predict(batch.inputs).ok());
  EXPECT_EQ(calls, 0);
  ASSERT_TRUE(executable->Accumulate(batch.batch(), 1, nullptr).ok());
  // Two layers, forward and backward.
  EXPECT_EQ(calls, 4);
  absl::Status status = executable->TakePartInStatistics(nullptr);
  // A device tells it when the host waits.
  status.Update(executable->Synchronize());
  ASSERT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(StatisticsOfRanks, TellTheErrorOfTheSum) {
  const Graph model = SmallConvnet();
  int calls = 0;
  int fails_at = 0;
  CompileOptions options = {.max_rows = 2};
  options.sum_statistics = [&](absl::Span<double>) {
    return ++calls == fails_at ? absl::UnavailableError("rank 1 is gone") : absl::OkStatus();
  };
  const std::unique_ptr<Executable> executable = Compile(GetParam(), model, {}, options);
  testing::RandomizeState(5, *executable);
  const TestBatch batch = testing::RandomBatch(1, model, 2);
  for (fails_at = 1; fails_at <= 4; ++fails_at) {
    calls = 0;
    const absl::Status status = executable->Accumulate(batch.batch(), 1, nullptr);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("rank 1 is gone"), HasSubstr("bn")));
    // No further call is made.
    EXPECT_EQ(calls, fails_at);
  }
}

TEST_P(StatisticsOfRanks, OfASingleValueAreRefusedOnEveryRank) {
  GraphBuilder builder({3, 1, 1});
  builder.SoftmaxCrossEntropy(
      builder.Linear("fc", builder.Flatten(builder.BatchNorm("bn", builder.input())), 2));
  const Graph model = *std::move(builder).Build();
  ThreadSum sum(2);
  const TestBatch batch = testing::RandomBatch(1, model, 1);
  RunRanks(2, [&](int rank) {
    const std::unique_ptr<Executable> executable =
        Compile(GetParam(), model, {}, OptionsOfRank({}, sum, rank, 2));
    absl::Status status = rank == 0 ? executable->Accumulate(batch.batch(), 1, nullptr)
                                    : executable->TakePartInStatistics(nullptr);
    // A device tells it when the host waits.
    status.Update(executable->Synchronize());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("bn"), HasSubstr("1 values")));
  });
}

TEST_P(StatisticsOfRanks, RefuseGroupsAndOptionsThatMakeNoSense) {
  const Graph model = SmallConvnet();
  ThreadSum sum(1);
  const CompileOptions good = OptionsOfRank({.max_rows = 4}, sum, 0, 1);
  const std::unique_ptr<Executable> executable = Compile(GetParam(), model, {}, good);
  const TestBatch batch = testing::RandomBatch(1, model, 4);
  const std::vector<int64_t> groups = {2, 2};
  Batch grouped = batch.batch();
  grouped.groups = groups;
  EXPECT_EQ(executable->Accumulate(grouped, 1, nullptr).code(), absl::StatusCode::kInvalidArgument);
  const auto code = [&](const CompileOptions& options) {
    return (*MakeBackend(GetParam()))->Compile(model, {}, options).status().code();
  };
  CompileOptions options = good;
  options.max_groups = 2;
  EXPECT_EQ(code(options), absl::StatusCode::kInvalidArgument);
  options = good;
  options.microbatch_slots = 1;
  EXPECT_EQ(code(options), absl::StatusCode::kInvalidArgument);
  options = good;
  options.statistics_rank = 1;
  EXPECT_EQ(code(options), absl::StatusCode::kInvalidArgument);
  options.statistics_rank = -1;
  EXPECT_EQ(code(options), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Compile(GetParam(), model, {}, {})->TakePartInStatistics(nullptr).code(),
            absl::StatusCode::kFailedPrecondition);
}

INSTANTIATE_TEST_SUITE_P(Backends, StatisticsOfRanks, ::testing::ValuesIn(testing::AllBackends()));

// Values of one channel spread over ranks, all of them near `offset`: by the definition.
TEST(RankStatistics, MergeWithoutCancellation) {
  for (const double offset : {0.0, 1e3, 1e8}) {
    const std::vector<std::vector<double>> values = {{1, 2, 4}, {3}, {}, {-5, 0.5, 0.25, 8}};
    std::vector<double> all;
    for (const auto& of_rank : values) {
      for (const double value : of_rank) all.push_back(offset + value);
    }
    const auto moments = [](const std::vector<double>& some) {
      double mean = 0;
      double variance = 0;
      for (const double value : some) mean += value / static_cast<double>(some.size());
      for (const double value : some) {
        variance += (value - mean) * (value - mean) / static_cast<double>(some.size());
      }
      return std::pair(mean, variance);
    };
    const auto [mean, variance] = moments(all);
    ThreadSum sum(4);
    std::vector<std::vector<double>> merged(4);
    RunRanks(4, [&](int rank) {
      const auto at = static_cast<size_t>(rank);
      RankStatistics statistics(OptionsOfRank({}, sum, rank, 4));
      std::vector<double> mine = values[at];
      for (double& value : mine) value += offset;
      const absl::Span<double> both = statistics.Values(1);
      if (!mine.empty()) std::tie(both[0], both[1]) = moments(mine);
      EXPECT_TRUE(statistics.Merge(static_cast<int64_t>(mine.size()), 1).ok());
      EXPECT_EQ(statistics.rows(), 8);
      merged[at].assign(both.begin(), both.end());
    });
    EXPECT_NEAR(merged[0][0], mean, 1e-15 * std::max(1.0, offset) * 4);
    // The only loss is the rounding of the values themselves.
    EXPECT_NEAR(merged[0][1], variance, 1e-6);
    for (const auto& of_rank : merged) EXPECT_EQ(of_rank, merged[0]);
  }
}

}  // namespace
}  // namespace trainyard::engine
