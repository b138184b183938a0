// Runs ranks as threads in a folder of their own.
#include "tests/unit/worker/parallel/gang.h"

#include <cstdlib>
#include <thread>
#include <utility>

#include "common/base/check.h"
#include "common/base/files.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_dir.h"

namespace trainyard::parallel {

Transport LocalTransport() {
  return {"local", [](const Place& place) -> absl::StatusOr<std::unique_ptr<Communicator>> {
            return MakeLocalCommunicator(place.group, place.rank);
          }};
}

std::vector<absl::Status> RunPlaces(int world_size,
                                    const std::function<absl::Status(const Place&)>& work) {
  const testing::TempDir folder;
  const auto group = MakeLocalGroup(world_size);
  std::vector<absl::Status> statuses(static_cast<size_t>(world_size));
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(world_size));
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      statuses[static_cast<size_t>(rank)] =
          work({rank, world_size, run_dir::RunDir(folder.path()), group});
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

std::vector<absl::Status> RunGang(const Transport& transport, int world_size, const RankWork& work,
                                  absl::Duration timeout) {
  return RunPlaces(world_size, [&](const Place& place) -> absl::Status {
    auto communicator = transport.connect(place);
    if (!communicator.ok()) return communicator.status();
    (*communicator)->set_timeout(timeout);
    return work(**communicator);
  });
}

absl::Status Meet(Communicator& communicator) {
  const float mine = 1;
  std::vector<float> all(static_cast<size_t>(communicator.world_size()));
  return communicator.AllGather({&mine, 1}, absl::MakeSpan(all));
}

}  // namespace trainyard::parallel
