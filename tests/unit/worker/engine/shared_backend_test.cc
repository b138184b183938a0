// Tests that one backend serves all who ask.
#include "worker/engine/shared_backend.h"

#include <gtest/gtest.h>

#include <memory>

#include "worker/engine/make_backend.h"

namespace trainyard::engine {
namespace {

TEST(SharedBackend, IsMadeOnce) {
  int made = 0;
  const BackendFactory factory = ShareBackend([&made] {
    ++made;
    return MakeBackend("reference");
  });
  EXPECT_EQ(made, 0) << "nobody has asked for it";
  const auto first = factory();
  const auto second = factory();
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(made, 1);
  EXPECT_EQ((*second)->name(), "reference");
  EXPECT_EQ((*second)->auto_precision(), (*MakeBackend("reference"))->auto_precision());
}

TEST(SharedBackend, IsMadeByTheNextCallerIfItFails) {
  bool works = false;
  const BackendFactory factory =
      ShareBackend([&works]() -> absl::StatusOr<std::unique_ptr<Backend>> {
        if (!works) return absl::UnavailableError("not yet");
        return MakeBackend("reference");
      });
  EXPECT_EQ(factory().status().code(), absl::StatusCode::kUnavailable);
  works = true;
  EXPECT_TRUE(factory().ok());
}

}  // namespace
}  // namespace trainyard::engine
