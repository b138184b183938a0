// Writes bundles.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/bundle/format.h"
#include "common/tar/tar.h"

namespace trainyard::bundle {

// The same entries always give the same bytes. The class is not thread-safe.
class BundleWriter {
 public:
  // Begins with the list, so sizes and hashes must be known.
  static absl::StatusOr<std::unique_ptr<BundleWriter>> Create(tar::Sink sink,
                                                              const Manifest& manifest);
  ~BundleWriter();

  // Adds the next entry of the list, whose bytes the source gives. Returns ABORTED if it gives
  // more or fewer than the list says.
  absl::Status Add(const tar::Source& source);
  absl::Status AddText(absl::string_view text);
  // Ends the file, once every entry of the list was added.
  absl::Status Finish();

 private:
  struct State;
  explicit BundleWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace trainyard::bundle
