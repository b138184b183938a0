// Tests what a row writes, since the table in docs/reliability.md is only as good as that.
#include "tests/faults/report.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "common/base/files.h"
#include "nlohmann/json.hpp"
#include "tests/testing/temp_dir.h"

namespace trainyard::testing {
namespace {

// Sets a variable for the life of the object, and puts back what was there.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value) : name_(name) {
    const char* before = getenv(name);
    had_before_ = before != nullptr;
    if (had_before_) before_ = before;
    setenv(name, value.c_str(), 1);
  }
  ~ScopedVariable() {
    if (had_before_) {
      setenv(name_, before_.c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* const name_;
  bool had_before_ = false;
  std::string before_;
};

TEST(FaultReport, ARowSaysWhatWasCounted) {
  TempDir dir;
  const ScopedVariable out("TRAINYARD_FAULTS_OUT", dir.path());
  const ScopedVariable lane("TRAINYARD_FAULTS", "long");
  const ScopedVariable commit("TRAINYARD_FAULTS_COMMIT", "0123abc");
  {
    FaultRow row({.fault = "a fault", .injection = "an injection", .expectation = "nothing"});
    row.Count("kills", 2);
    row.Count("lost", 0);
    row.Count("kills", 3);
    row.Longest("restart", absl::Milliseconds(20));
    row.Longest("restart", absl::Milliseconds(10));
    row.Survived();
  }
  { const FaultRow row({.fault = "a fault", .injection = "another", .expectation = "nothing"}); }
  const std::string text = *ReadFile(dir.File("rows.jsonl"));
  const size_t end = text.find('\n');
  const auto first = nlohmann::json::parse(text.substr(0, end));
  EXPECT_EQ(first["outcome"], "survived");
  EXPECT_EQ(first["counts"]["kills"], 5);
  EXPECT_EQ(first["counts"]["lost"], 0);
  EXPECT_EQ(first["milliseconds"]["restart"], 20);
  EXPECT_EQ(first["lane"], "long");
  EXPECT_EQ(first["commit"], "0123abc");
  EXPECT_EQ(first["test"], "FaultReport.ARowSaysWhatWasCounted");
  const auto second = nlohmann::json::parse(text.substr(end + 1));
  EXPECT_EQ(second["outcome"], "failed") << "it did not come to its end";
}

TEST(FaultReport, TheLaneScales) {
  const ScopedVariable lane("TRAINYARD_FAULTS", "long");
  EXPECT_EQ(Scaled(3, 300), 300);
  const ScopedVariable other("TRAINYARD_FAULTS", "");
  EXPECT_EQ(Scaled(3, 300), 3);
}

}  // namespace
}  // namespace trainyard::testing
