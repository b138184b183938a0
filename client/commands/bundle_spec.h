// Reads specs out of bundles, and finds bundles where people name them: in a file, at a URL, or as
// a job of the server of another context.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/commands/context.h"
#include "client/spec_loader/spec_text.h"
#include "common/base/files.h"
#include "common/bundle/reader.h"

namespace trainyard::commands {

// Returns true if the text names a bundle: a file that is one, a URL, or CONTEXT:jobs/12.
bool IsBundleSource(const std::string& source);

// A bundle that is open. A file that was fetched for it is removed with it.
class BundleFile {
 public:
  // Opens what `source` names; "-" is standard input. A URL is downloaded, by https or from this
  // host itself. The job of another server is exported with these checkpoints, or, if that is
  // empty, with no more than it takes to run it.
  static absl::StatusOr<BundleFile> Open(const Context& context, const std::string& source,
                                         const std::string& checkpoints);
  BundleFile(BundleFile&& other) noexcept;
  BundleFile& operator=(BundleFile&&) = delete;
  ~BundleFile();

  bundle::BundleReader& reader() { return *reader_; }
  // The name that the user gave.
  const std::string& name() const { return name_; }

 private:
  BundleFile() = default;

  std::string name_;
  std::string folder_;  // of the file that was fetched; empty if there is none
  UniqueFd fd_;
  std::unique_ptr<bundle::BundleReader> reader_;
};

// Writes the code archive that the reader stands at, and whose digest that is, into the cache.
// Returns its path.
absl::StatusOr<std::string> KeepCode(const Context& context, const std::string& digest,
                                     bundle::BundleReader& reader);

// Returns the resolved spec of the bundle, pinned to the data on which the job trained, with the
// code that came with it. What it refers to on its own server is left out, which the user is told.
absl::StatusOr<spec_loader::SpecText> ReadBundleSpec(const Context& context,
                                                     const std::string& source);

}  // namespace trainyard::commands
