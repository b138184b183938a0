// The main function of tests that compare the CUDA backend with the reference, on a GPU or on the
// emulation of one, whichever libraries the program was linked with.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/backend/backend.h"
#include "worker/engine/backend/cuda/cuda_backend.h"
#include "worker/engine/make_backend.h"

namespace trainyard::engine {
namespace {

// Each call gives the same backend's plans: they take a while to make.
absl::StatusOr<std::unique_ptr<Backend>> MakeTestedBackend() {
  return MakeCudaBackend({.autotunes = false});
}

int Main(int argc, char** argv) {
  RegisterBackend("cuda", MakeTestedBackend);
  testing::SetTestedBackend("cuda");
  ::testing::InitGoogleTest(&argc, argv);
  // ctest also asks for the names of the tests on machines without a GPU.
  if (::testing::GTEST_FLAG(list_tests)) return RUN_ALL_TESTS();
  const auto backend = MakeTestedBackend();
  if (!backend.ok()) {
    std::printf("[  SKIPPED ] %s\n", std::string(backend.status().message()).c_str());
    return 0;
  }
  return RUN_ALL_TESTS();
}

}  // namespace
}  // namespace trainyard::engine

int main(int argc, char** argv) {
  return trainyard::engine::Main(argc, argv);
}
