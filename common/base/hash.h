// The hash of content: what a checkpoint's files and a data set are recognised by. For damage and
// mix-ups, not against forgery.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace trainyard {

// XXH3, 128 bits, over pieces. Not thread-safe.
class ContentHasher {
 public:
  ContentHasher();
  ~ContentHasher();

  void Update(absl::string_view bytes);
  // "xxh3-128:<32 hex digits>" of what has come so far.
  std::string Text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Returns the digest of all of `bytes` in the same form.
std::string ContentHash(absl::string_view bytes);
// Returns the digest of a file in the same form. It reads the file once, in blocks.
absl::StatusOr<std::string> FileHash(const std::string& path);
// The 32 lower-case hex digits of a well-formed hash, safe as a file name; INVALID_ARGUMENT
// otherwise.
absl::StatusOr<std::string> HashDigits(absl::string_view hash);

}  // namespace trainyard
