// A small file system that a test can fill up.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "tests/testing/temp_dir.h"

namespace trainyard::testing {

// A tmpfs in a mount namespace of the calling thread, and of the threads and processes that it
// starts from then on.
class SmallDisk {
 public:
  // Returns null if this process may not mount, and the test skips. `why` then says why.
  static std::unique_ptr<SmallDisk> Mount(int64_t bytes, std::string& why);
  ~SmallDisk();

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }
  // Takes all space that is left.
  void Fill();
  // Gives the space back that Fill has taken.
  void Free();

 private:
  explicit SmallDisk(std::unique_ptr<TempDir> dir) : dir_(std::move(dir)), path_(dir_->path()) {}

  std::unique_ptr<TempDir> dir_;
  std::string path_;
};

}  // namespace trainyard::testing
