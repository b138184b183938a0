// The main function of tests that compare the CUDA backend with the reference, on a GPU or on the
// emulation of one, whichever libraries the program was linked with.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "common/base/check.h"
#include "tests/testing/temp_dir.h"
#include "tests/unit/worker/engine/engine_testing.h"
#include "worker/engine/backend/cuda/cuda_backend.h"
#include "worker/engine/make_backend.h"
#include "worker/engine/shared_backend.h"

namespace trainyard::engine {
namespace {

int Main(int argc, char** argv) {
  // The tests share one backend with its plans, since plans take a while to make. Ranks that are
  // threads of a test have backends of their own, and find the plans in the folder: what shares
  // plans runs in one thread, on one device.
  const trainyard::testing::TempDir folder;
  const BackendFactory make = [&folder] {
    thread_local const BackendFactory shared = ShareBackend([&folder] {
      return MakeCudaBackend({.plan_cache_folder = folder.path(), .autotunes = false});
    });
    return shared();
  };
  RegisterBackend("cuda", make);
  testing::SetTestedBackend("cuda");
  testing::SetDeviceCopy([](void* to, const void* from, size_t bytes) {
    TY_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice) == cudaSuccess);
    TY_CHECK(cudaDeviceSynchronize() == cudaSuccess);
  });
  ::testing::InitGoogleTest(&argc, argv);
  // ctest also asks for the names of the tests on machines without a GPU.
  if (::testing::GTEST_FLAG(list_tests)) return RUN_ALL_TESTS();
  const auto backend = make();
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
