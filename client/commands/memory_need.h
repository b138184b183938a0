// Finds out how much memory a job needs, and how much the devices of the pool have. The trainer
// beside this program plans; the server decides.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "client/link/server_link.h"
#include "trainyard/v1/job.pb.h"

namespace trainyard::commands {

// Plans specs, and remembers the plans: specs that differ only in what needs no memory, such as
// names, seeds and learning rates, are planned once. It is not thread-safe.
class MemoryPlanner {
 public:
  explicit MemoryPlanner(std::string binary_dir) : binary_dir_(std::move(binary_dir)) {}

  // Returns nothing if it is not known: there is no trainer, it does not accept the spec, or it has
  // planned for too long already.
  std::optional<v1::MemoryNeed> NeedOf(const v1::JobSpec& written);

 private:
  const std::string binary_dir_;
  absl::Duration spent_;
  std::map<std::string, std::optional<v1::MemoryNeed>> known_;  // by serialized spec
};

// The devices of the pool that suit a spec and have most memory.
struct PoolDevices {
  std::string type;
  int64_t memory_bytes = 0;
  int count = 0;

  // Returns a text such as "2 devices of type cpu with 12 GiB".
  std::string Text() const;
};

// Returns nothing if no device with a known memory suits the spec.
absl::StatusOr<std::optional<PoolDevices>> LargestDevices(link::ServerLink& link,
                                                          const v1::DevicesSpec& wanted);

}  // namespace trainyard::commands
