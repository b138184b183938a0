#include "tests/unit/worker/parallel/gang.h"

#include <cstdlib>
#include <memory>
#include <thread>

#include "common/base/check.h"
#include "common/base/files.h"
#include "gtest/gtest.h"
#include "worker/parallel/gloo/gloo_communicator.h"
#include "worker/parallel/local/local_communicator.h"
#include "worker/parallel/shm/shm_communicator.h"

namespace trainyard::parallel {

std::string TransportName(Transport transport) {
  switch (transport) {
    case Transport::kLocal:
      return "local";
    case Transport::kGloo:
      return "gloo";
    case Transport::kShm:
      return "shm";
  }
  return "";
}

std::vector<absl::Status> RunGang(Transport transport, int world_size, const RankWork& work,
                                  absl::Duration timeout) {
  std::string folder = ::testing::TempDir() + "/gang.XXXXXX";
  TY_CHECK(mkdtemp(folder.data()) != nullptr);
  const auto group = MakeLocalGroup(world_size);
  std::vector<absl::Status> statuses(static_cast<size_t>(world_size));
  const auto run_rank = [&](int rank) -> absl::Status {
    std::unique_ptr<Communicator> communicator;
    if (transport == Transport::kLocal) {
      communicator = MakeLocalCommunicator(group, rank);
    } else if (transport == Transport::kShm) {
      ShmOptions options;
      options.rank = rank;
      options.world_size = world_size;
      options.run_dir = run_dir::RunDir(folder);
      auto connected = ConnectShm(options);
      if (!connected.ok()) return connected.status();
      communicator = *std::move(connected);
    } else {
      GlooOptions options;
      options.rank = rank;
      options.world_size = world_size;
      options.run_dir = run_dir::RunDir(folder);
      auto connected = ConnectGloo(options);
      if (!connected.ok()) return connected.status();
      communicator = *std::move(connected);
    }
    communicator->set_timeout(timeout);
    return work(*communicator);
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
