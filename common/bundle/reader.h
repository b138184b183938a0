// Reads bundles that anybody may have made: only what the list at the beginning names is there, in
// its order, with its sizes and hashes, and no more than the limits allow.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/bundle/format.h"
#include "common/tar/tar.h"

namespace trainyard::bundle {

// The class is not thread-safe. All functions return the errors of the source, DATA_LOSS
// (CORRUPT_FILE) for damage, INVALID_ARGUMENT (BUNDLE_REFUSED) for what no bundle has, and
// RESOURCE_EXHAUSTED (BUNDLE_TOO_LARGE) past a limit.
class BundleReader {
 public:
  // Reads the list. `name` is that of the file in messages.
  static absl::StatusOr<std::unique_ptr<BundleReader>> Open(tar::Source source, std::string name,
                                                            const Limits& limits = {});
  ~BundleReader();

  const Manifest& manifest() const;
  // Returns sentences about parts that were left out, because a newer version has added them.
  const std::vector<std::string>& warnings() const;

  // Goes on to the next entry, after the rest of the last one has been checked. Returns null at the
  // end. Entries that this version does not know are passed over.
  absl::StatusOr<const BundleEntry*> Next();
  // Returns the next bytes of the entry, which are valid until the next call. The result is empty
  // at its end, once its size and its hash were found right.
  absl::StatusOr<absl::string_view> Read();
  // Returns the whole entry, which is one that limits keep small.
  absl::StatusOr<std::string> ReadAll();

 private:
  struct State;
  explicit BundleReader(std::unique_ptr<State> state);
  absl::Status ReadManifest(const Limits& limits);

  std::unique_ptr<State> state_;
};

}  // namespace trainyard::bundle
