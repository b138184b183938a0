// Lets root work as the owner of a folder.
#pragma once

#include <sys/types.h>

#include <string>

namespace trainyard::backup {

// Makes the process act as the owner of a folder until it is destroyed, so that what it makes there
// belongs to the owner. It does nothing if the caller is not root. The process has one thread.
class AsOwner {
 public:
  explicit AsOwner(const std::string& folder);
  ~AsOwner();
  AsOwner(const AsOwner&) = delete;
  AsOwner& operator=(const AsOwner&) = delete;

 private:
  bool is_changed_ = false;
};

}  // namespace trainyard::backup
