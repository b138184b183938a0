// Writes the rows, each as one line of JSON.
#include "tests/faults/report.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/base/env.h"
#include "common/base/files.h"
#include "nlohmann/json.hpp"

namespace trainyard::testing {
namespace {

std::string Variable(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

// Returns what the test gave to GTEST_SKIP.
std::string SkipReason() {
  const ::testing::TestResult* result =
      ::testing::UnitTest::GetInstance()->current_test_info()->result();
  for (int i = 0; i < result->total_part_count(); ++i) {
    if (result->GetTestPartResult(i).skipped()) return result->GetTestPartResult(i).message();
  }
  return "";
}

}  // namespace

bool IsLongLane() {
  return Variable("TRAINYARD_FAULTS") == "long";
}

void FaultRow::Count(absl::string_view name, int64_t count) {
  const auto found = std::find_if(counts_.begin(), counts_.end(),
                                  [name](const auto& known) { return known.first == name; });
  if (found == counts_.end()) {
    counts_.emplace_back(name, count);
  } else {
    found->second += count;
  }
}

void FaultRow::Longest(absl::string_view name, absl::Duration time) {
  const auto found = std::find_if(times_.begin(), times_.end(),
                                  [name](const auto& known) { return known.first == name; });
  if (found == times_.end()) {
    times_.emplace_back(name, time);
  } else {
    found->second = std::max(found->second, time);
  }
}

FaultRow::~FaultRow() {
  const std::string folder = Variable("TRAINYARD_FAULTS_OUT");
  if (folder.empty()) return;
  const ::testing::TestInfo* test = ::testing::UnitTest::GetInstance()->current_test_info();
  nlohmann::ordered_json line;
  line["fault"] = description_.fault;
  line["injection"] = description_.injection;
  line["expectation"] = description_.expectation;
  line["test"] = absl::StrCat(test->test_suite_name(), ".", test->name());
  if (::testing::Test::IsSkipped()) {
    line["outcome"] = "skipped";
    line["reason"] = SkipReason();
  } else {
    line["outcome"] = has_survived_ && !::testing::Test::HasFailure() ? "survived" : "failed";
  }
  line["counts"] = nlohmann::ordered_json::object();
  for (const auto& [name, count] : counts_) line["counts"][name] = count;
  line["milliseconds"] = nlohmann::ordered_json::object();
  for (const auto& [name, time] : times_) {
    line["milliseconds"][name] = absl::ToDoubleMilliseconds(time);
  }
  line["lane"] = IsLongLane() ? "long" : "short";
  line["date"] = absl::FormatTime("%Y-%m-%d", Clock::Real()->Now(), absl::UTCTimeZone());
  line["commit"] = Variable("TRAINYARD_FAULTS_COMMIT");
  // Tests that run side by side append to the same file, each in one write.
  const std::string path = JoinPath(folder, "rows.jsonl");
  const auto file = OpenFile(path, O_WRONLY | O_APPEND | O_CREAT);
  const absl::Status written =
      file.ok() ? WriteFully(file->get(), line.dump() + "\n", path) : file.status();
  EXPECT_TRUE(written.ok()) << written;
}

}  // namespace trainyard::testing
