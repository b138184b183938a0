// Compresses and decompresses streams with zstd.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tar/tar.h"

namespace trainyard::bundle {

// Compresses what it is given. The class is not thread-safe.
class Compressor {
 public:
  explicit Compressor(tar::Sink sink);
  ~Compressor();

  absl::Status Write(absl::string_view bytes);
  // Writes the end of the stream.
  absl::Status Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Decompresses a stream, and never more of it than it was allowed. The class is not thread-safe.
class Decompressor {
 public:
  // `name` is that of the file in messages. `allowed` are the bytes that may come out of it.
  Decompressor(tar::Source source, std::string name, int64_t allowed);
  ~Decompressor();

  // Returns the next bytes, which are valid until the next call, and an empty text at the end.
  // Returns DATA_LOSS (CORRUPT_FILE) for what zstd has not made or what was cut off, and
  // RESOURCE_EXHAUSTED (BUNDLE_TOO_LARGE) for more bytes than are allowed.
  absl::StatusOr<absl::string_view> Next();
  // Allows so many bytes in all.
  void Allow(int64_t bytes);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trainyard::bundle
