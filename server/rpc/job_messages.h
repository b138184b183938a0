// Writes jobs as messages once for all who watch them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "common/base/recent_map.h"
#include "server/rpc/services.h"
#include "server/runtime/board.h"
#include "server/store/sqlite/remark_store.h"

namespace trainyard::rpc {

// A change of a job goes to everybody who watches it, and making the message costs more than the
// rest of sending it. The class is thread-safe.
class JobMessages {
 public:
  using Text = std::shared_ptr<const std::string>;

  // The messages of some thousand jobs, each of which has a few KiB. Their views take no more,
  // since they share the specs with the board.
  static constexpr size_t kBytesMax = size_t{16} << 20;

  // All messages that are kept have at most about `bytes_max` bytes.
  explicit JobMessages(size_t bytes_max = kBytesMax) : kept_(bytes_max) {}

  // Returns the bytes of a WatchJobsResponse that has nothing but the job, as ShownJob shows it.
  Text Of(const Services& services, const std::shared_ptr<const runtime::JobView>& view);

 private:
  // A view and remarks do not change, so a message is right as long as they are the newest ones.
  struct Message {
    std::shared_ptr<const runtime::JobView> view;
    std::shared_ptr<const store::Remarks> remarks;
    Text text;
  };

  RecentMap<int64_t, Message> kept_;  // by the number of the job
};

}  // namespace trainyard::rpc
