// Follows the links first and opens what they lead to, which must not be another link by then.
#include "worker/data/data_file.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdlib>
#include <memory>

#include "common/base/status_macros.h"

namespace trainyard::data {
namespace {

absl::StatusOr<std::string> FollowLinks(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr),
                                                         &std::free);
  if (real == nullptr) return ErrnoStatus(errno, "cannot open", path);
  return std::string(real.get());
}

}  // namespace

absl::StatusOr<UniqueFd> OpenDataFile(const std::string& path) {
  TY_ASSIGN_OR_RETURN(const std::string real, FollowLinks(path));
  return OpenRegularFile(real, O_RDONLY);
}

absl::StatusOr<std::string> ReadDataFile(const std::string& path, int64_t max_bytes) {
  TY_ASSIGN_OR_RETURN(const std::string real, FollowLinks(path));
  return ReadRegularFile(real, max_bytes);
}

absl::StatusOr<std::string> ReadDataRange(const std::string& path, int64_t offset,
                                          int64_t max_bytes) {
  TY_ASSIGN_OR_RETURN(const std::string real, FollowLinks(path));
  return ReadRegularFileRange(real, offset, max_bytes);
}

}  // namespace trainyard::data
