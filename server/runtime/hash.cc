#include "server/runtime/hash.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"

namespace trainyard::runtime {
namespace {

constexpr absl::string_view kPrefix = "xxh3-128:";
constexpr size_t kDigits = 32;

std::string Text(XXH128_hash_t hash) {
  return absl::StrCat(kPrefix, absl::Hex(hash.high64, absl::kZeroPad16),
                      absl::Hex(hash.low64, absl::kZeroPad16));
}

}  // namespace

std::string ContentHash(absl::string_view bytes) {
  return Text(XXH3_128bits(bytes.data(), bytes.size()));
}

absl::StatusOr<std::string> FileHash(const std::string& path) {
  TY_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(path, O_RDONLY));
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       &XXH3_freeState);
  XXH3_128bits_reset(state.get());
  std::vector<char> block(size_t{1} << 20);
  while (true) {
    const ssize_t got = read(fd.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "cannot read", path);
    if (got == 0) break;
    XXH3_128bits_update(state.get(), block.data(), static_cast<size_t>(got));
  }
  return Text(XXH3_128bits_digest(state.get()));
}

absl::StatusOr<std::string> HashDigits(absl::string_view hash) {
  absl::string_view digits = hash;
  const bool has_form = absl::ConsumePrefix(&digits, kPrefix) && digits.size() == kDigits &&
                        digits.find_first_not_of("0123456789abcdef") == absl::string_view::npos;
  if (!has_form) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", hash, "' is not a hash; expected xxh3-128: and 32 hex digits"));
  }
  return std::string(digits);
}

}  // namespace trainyard::runtime
