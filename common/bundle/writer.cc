// Passes entries through tar and zstd.
#include "common/bundle/writer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/bundle/zstd.h"

namespace trainyard::bundle {

struct BundleWriter::State {
  State(tar::Sink sink, Manifest the_manifest)
      : manifest(std::move(the_manifest)), compressor(std::move(sink)) {}

  Manifest manifest;
  Compressor compressor;
  std::unique_ptr<tar::Writer> tar;
  size_t next = 0;
};

BundleWriter::BundleWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
BundleWriter::~BundleWriter() = default;

absl::StatusOr<std::unique_ptr<BundleWriter>> BundleWriter::Create(tar::Sink sink,
                                                                   const Manifest& manifest) {
  auto state = std::make_unique<State>(std::move(sink), manifest);
  Compressor& compressor = state->compressor;
  TY_ASSIGN_OR_RETURN(
      state->tar, tar::Writer::Create(
                      [&compressor](absl::string_view bytes) { return compressor.Write(bytes); },
                      "the bundle"));
  const std::string text = ManifestText(manifest);
  tar::Head head;
  head.path = kManifestName;
  head.size = static_cast<int64_t>(text.size());
  TY_RETURN_IF_ERROR(state->tar->Begin(head));
  TY_RETURN_IF_ERROR(state->tar->Write(text));
  return std::unique_ptr<BundleWriter>(new BundleWriter(std::move(state)));
}

absl::Status BundleWriter::Add(const tar::Source& source) {
  State& state = *state_;
  TY_CHECK(state.next < state.manifest.entries.size());
  const BundleEntry& entry = state.manifest.entries[state.next++];
  tar::Head head;
  head.path = entry.name;
  head.size = entry.size;
  TY_RETURN_IF_ERROR(state.tar->Begin(head));
  int64_t written = 0;
  while (true) {
    TY_ASSIGN_OR_RETURN(const absl::string_view block, source());
    if (block.empty()) break;
    written += static_cast<int64_t>(block.size());
    if (written > entry.size) break;
    TY_RETURN_IF_ERROR(state.tar->Write(block));
  }
  if (written == entry.size) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat("'", entry.name, "' has just changed its size"));
}

absl::Status BundleWriter::AddText(absl::string_view text) {
  return Add([text]() mutable -> absl::StatusOr<absl::string_view> {
    return std::exchange(text, absl::string_view());
  });
}

absl::Status BundleWriter::Finish() {
  TY_CHECK(state_->next == state_->manifest.entries.size());
  TY_RETURN_IF_ERROR(state_->tar->Finish());
  return state_->compressor.Finish();
}

}  // namespace trainyard::bundle
