// Lets root work as the owner of a folder.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trainyard::backup {

// Makes the process act as the owner of a folder until it is destroyed, so that what it makes there
// belongs to the owner. It does nothing if the caller is not root or the folder is not there. The
// process has one thread.
class AsOwner {
 public:
  // Returns what the system says if root cannot become the owner, as in a container that does not
  // know that user.
  static absl::StatusOr<AsOwner> Become(const std::string& folder);
  AsOwner(AsOwner&& other) noexcept : is_changed_(std::exchange(other.is_changed_, false)) {}
  ~AsOwner();
  AsOwner(const AsOwner&) = delete;
  AsOwner& operator=(const AsOwner&) = delete;

 private:
  explicit AsOwner(bool is_changed) : is_changed_(is_changed) {}
  bool is_changed_;
};

// Gives a folder and all that is in it to the owner of another one, if the caller is root.
absl::Status GiveToOwnerOf(const std::string& owner_of, const std::string& folder);

}  // namespace trainyard::backup
