#include "tests/unit/worker/parallel/gang.h"

#include <cstdlib>
#include <thread>
#include <utility>

#include "common/base/check.h"
#include "common/base/files.h"
#include "gtest/gtest.h"

namespace trainyard::parallel {

Transport LocalTransport() {
  return {"local", [](const Place& place) -> absl::StatusOr<std::unique_ptr<Communicator>> {
            return MakeLocalCommunicator(place.group, place.rank);
          }};
}

std::vector<absl::Status> RunGang(const Transport& transport, int world_size, const RankWork& work,
                                  absl::Duration timeout) {
  std::string folder = ::testing::TempDir() + "/gang.XXXXXX";
  TY_CHECK(mkdtemp(folder.data()) != nullptr);
  const auto group = MakeLocalGroup(world_size);
  std::vector<absl::Status> statuses(static_cast<size_t>(world_size));
  const auto run_rank = [&](int rank) -> absl::Status {
    auto communicator = transport.connect({rank, world_size, run_dir::RunDir(folder), group});
    if (!communicator.ok()) return communicator.status();
    (*communicator)->set_timeout(timeout);
    return work(**communicator);
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] { statuses[static_cast<size_t>(rank)] = run_rank(rank); });
  }
  for (std::thread& thread : threads) thread.join();
  TY_CHECK_OK(RemoveTree(folder));
  return statuses;
}

}  // namespace trainyard::parallel
