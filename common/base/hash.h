// Defines the hash of content, by which the files of checkpoints and data sets are recognised. It
// protects against damage and mix-ups, but not against forgery.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard {

// Computes XXH3 with 128 bits over content that comes in pieces. The class is not thread-safe.
class ContentHasher {
 public:
  ContentHasher();
  ~ContentHasher();

  void Update(absl::string_view bytes);
  // Returns "xxh3-128:<32 hex digits>" of what has come so far.
  std::string Text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Returns the digest of all of `bytes` in the same form.
std::string ContentHash(absl::string_view bytes);
// Returns the digest of a file in the same form. It reads the file once, in blocks.
absl::StatusOr<std::string> FileHash(const std::string& path);
// Hashes only what OpenRegularFile opens. Of a file with more than `max_bytes`, which may grow as
// fast as it is read, it hashes the beginning.
absl::StatusOr<std::string> RegularFileHash(const std::string& path, int64_t max_bytes);
// Returns the 32 lower-case hex digits of a well-formed hash, which are safe as a file name, or
// INVALID_ARGUMENT.
absl::StatusOr<std::string> HashDigits(absl::string_view hash);

}  // namespace trainyard
