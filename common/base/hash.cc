// Computes hashes with xxHash. It is not cryptographic, and therefore as fast as disks when
// checkpoints of gigabytes are hashed.
#include "common/base/hash.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/base/check.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"

namespace trainyard {
namespace {

constexpr absl::string_view kPrefix = "xxh3-128:";
constexpr size_t kDigits = 32;

}  // namespace

struct ContentHasher::State {
  XXH3_state_t* xxh = XXH3_createState();
  ~State() { XXH3_freeState(xxh); }
};

ContentHasher::ContentHasher() : state_(std::make_unique<State>()) {
  TY_CHECK(state_->xxh != nullptr && XXH3_128bits_reset(state_->xxh) == XXH_OK);
}
ContentHasher::~ContentHasher() = default;

void ContentHasher::Update(absl::string_view bytes) {
  TY_CHECK(XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size()) == XXH_OK);
}

std::string ContentHasher::Text() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh);
  return absl::StrFormat("%s%016x%016x", kPrefix, hash.high64, hash.low64);
}

std::string ContentHash(absl::string_view bytes) {
  ContentHasher hasher;
  hasher.Update(bytes);
  return hasher.Text();
}

namespace {

// Stops at the end of the file, or once it has read more than `max_bytes`.
absl::StatusOr<std::string> HashAll(const UniqueFd& fd, const std::string& path,
                                    int64_t max_bytes) {
  ContentHasher hasher;
  int64_t size = 0;
  // The file is read in blocks, because a checkpoint may be larger than the memory that is free
  // beside the training.
  std::vector<char> block(size_t{1} << 20);
  while (true) {
    const ssize_t got = read(fd.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "cannot read", path);
    hasher.Update(absl::string_view(block.data(), static_cast<size_t>(got)));
    size += got;
    if (got == 0 || size > max_bytes) return hasher.Text();
  }
}

}  // namespace

absl::StatusOr<std::string> FileHash(const std::string& path) {
  TY_ASSIGN_OR_RETURN(const UniqueFd fd, OpenFile(path, O_RDONLY));
  return HashAll(fd, path, std::numeric_limits<int64_t>::max());
}

absl::StatusOr<std::string> RegularFileHash(const std::string& path, int64_t max_bytes) {
  TY_ASSIGN_OR_RETURN(const UniqueFd fd, OpenRegularFile(path, O_RDONLY));
  return HashAll(fd, path, max_bytes);
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

}  // namespace trainyard
