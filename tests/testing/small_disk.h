// Mounts a small file system of memory over a folder of a test, to fill it up.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace trainyard::testing {

// The file system is in a mount namespace of the thread that makes it, and of the processes that
// this thread starts from then on. It ends with this object.
class SmallDisk {
 public:
  // `options` are those of tmpfs: "size=4m,nr_inodes=100". Returns UNAVAILABLE if it cannot be
  // mounted here.
  static absl::StatusOr<std::unique_ptr<SmallDisk>> Mount(const std::string& folder,
                                                          const std::string& options);
  ~SmallDisk();
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  const std::string& path() const { return folder_; }
  std::string File(const std::string& name) const { return folder_ + "/" + name; }
  // Takes what is left of the space, or of the files that may be there.
  void FillSpace();
  void FillInodes();
  // Gives it back.
  void Free();

 private:
  explicit SmallDisk(std::string folder) : folder_(std::move(folder)) {}
  std::string Filler(size_t number) const;

  const std::string folder_;
  size_t fillers_ = 0;
};

}  // namespace trainyard::testing
