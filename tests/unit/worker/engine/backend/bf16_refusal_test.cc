// Tests bf16 on a machine without it. This is a program of its own, because oneDNN looks at its
// limit only once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "worker/engine/backend/backend.h"
#include "worker/engine/make_backend.h"
#include "worker/engine/models/models.h"

namespace trainyard::engine {
namespace {

TEST(Bf16, IsRefusedByAMachineWithoutIt) {
  ASSERT_EQ(setenv("DNNL_MAX_CPU_ISA", "AVX2", 1), 0);
  const Graph model = *BuildMlp({.input = {8}});
  const std::unique_ptr<Backend> backend = *MakeBackend("cpu");
  const absl::Status status = backend->Compile(model, {}, {.precision = Precision::kBf16}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              ::testing::MatchesRegex("precision bf16 needs a CPU with AVX512_BF16; this machine "
                                      "has (SSE4.1|AVX|AVX2); use f32"));
  EXPECT_TRUE(backend->Compile(model, {}, {}).ok());
}

}  // namespace
}  // namespace trainyard::engine
