// Jobs and expectations that the tests of whole trainings share.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/worker/trainer/gang_trainer.h"

namespace trainyard::trainer {

// The job of JobText has this many steps, which are two epochs.
inline constexpr int64_t kSteps = 8;

inline JobText WithBatchNorm() {
  JobText job;
  job.model = R"({"convnet": {"channels": [4, 6], "batch_norm": true}})";
  return job;
}

// Adds every kind of random choice about a sample except those for images.
inline JobText WithAugmentation() {
  JobText job;
  job.data = R"({"dataset": "glyphs", "train_size": 50, "test_size": 17,
    "augment": {"pad_crop": "3", "flip": true, "cutout": 6, "color": {"brightness": 0.4}}})";
  return job;
}

inline void ExpectSuccess(const std::vector<run_dir::RankResult>& results, int64_t step = kSteps) {
  for (const run_dir::RankResult& result : results) {
    EXPECT_EQ(result.outcome, run_dir::Outcome::kSucceeded) << result.message;
    EXPECT_EQ(result.step, step);
  }
}

inline void ExpectNear(const std::map<int64_t, double>& got,
                       const std::map<int64_t, double>& expected, double tolerance = 1e-5) {
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [step, value] : expected) {
    ASSERT_TRUE(got.contains(step)) << step;
    EXPECT_NEAR(got.at(step), value, tolerance * (1 + std::abs(value))) << "at step " << step;
  }
}

inline void ExpectNear(const checkpoint::TensorFile& left, const checkpoint::TensorFile& right) {
  ASSERT_EQ(left.tensors.size(), right.tensors.size());
  for (const auto& [name, tensor] : left.tensors) {
    ASSERT_TRUE(right.tensors.contains(name)) << name;
    const auto a = checkpoint::FloatValues(tensor).value();
    const auto b = checkpoint::FloatValues(right.tensors.at(name)).value();
    ASSERT_EQ(a.size(), b.size()) << name;
    for (size_t i = 0; i < a.size(); ++i) {
      ASSERT_NEAR(a[i], b[i], 2e-5 * (1 + std::abs(a[i]))) << name << "[" << i << "]";
    }
  }
}

}  // namespace trainyard::trainer
