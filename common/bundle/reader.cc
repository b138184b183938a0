// Sizes are compared before bytes are read, and bytes are counted while they are.
#include "common/bundle/reader.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/bundle_errors.h"
#include "common/base/check.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/bundle/zstd.h"
#include "common/tls/digest.h"

namespace trainyard::bundle {
namespace {

constexpr int64_t kTarBlock = 512;
// The heads of an entry, with one for a long name, and the end of the archive.
constexpr int64_t kHeadsBytes = 4 * kTarBlock + 2048;
constexpr int64_t kEndBytes = int64_t{1} << 20;

int64_t InTar(int64_t size) {
  return kHeadsBytes + (size + kTarBlock - 1) / kTarBlock * kTarBlock;
}

}  // namespace

struct BundleReader::State {
  explicit State(tar::Source source, std::string the_name, int64_t allowed)
      : name(std::move(the_name)),
        bytes(std::move(source), name, allowed),
        tar([this] { return bytes.Next(); }, name) {}

  // Checks the head of what must be the entry.
  absl::Status Begin(const std::string& entry_name, int64_t entry_size) {
    TY_ASSIGN_OR_RETURN(const std::optional<tar::Head> head, tar.Next());
    if (!head.has_value()) {
      return error::CorruptFile(name, absl::StrCat("'", entry_name, "' is missing"));
    }
    const std::string shown = PlainText(head->path, 200);
    if (head->path != entry_name) {
      return error::BundleRefused(
          name, absl::StrCat("it holds '", shown, "' where '", entry_name, "' is expected"));
    }
    if (head->kind != tar::Head::Kind::kFile) {
      return error::BundleRefused(name, absl::StrCat("'", shown, "' is no file"));
    }
    if (entry_size >= 0 && head->size != entry_size) {
      return error::CorruptFile(name, absl::StrCat("'", shown, "' has ", head->size,
                                                   " bytes; bundle.json says ", entry_size));
    }
    size = head->size;
    done = 0;
    return absl::OkStatus();
  }

  const std::string name;
  Decompressor bytes;
  tar::Reader tar;
  Manifest manifest;
  std::vector<std::string> warnings;
  size_t next = 0;                       // index of the next entry
  const BundleEntry* present = nullptr;  // null before the first and once it is done
  std::optional<tls::Sha256Hasher> hasher;
  int64_t size = 0;
  int64_t done = 0;  // bytes of the present entry
};

BundleReader::BundleReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
BundleReader::~BundleReader() = default;

const Manifest& BundleReader::manifest() const {
  return state_->manifest;
}

const std::vector<std::string>& BundleReader::warnings() const {
  return state_->warnings;
}

absl::StatusOr<std::unique_ptr<BundleReader>> BundleReader::Open(tar::Source source,
                                                                 std::string name,
                                                                 const Limits& limits) {
  std::unique_ptr<BundleReader> reader(new BundleReader(std::make_unique<State>(
      std::move(source), std::move(name), limits.manifest_bytes + kHeadsBytes + kEndBytes)));
  TY_RETURN_IF_ERROR(reader->ReadManifest(limits));
  return reader;
}

absl::Status BundleReader::ReadManifest(const Limits& limits) {
  State& state = *state_;
  TY_RETURN_IF_ERROR(state.Begin(kManifestName, -1));
  if (state.size < 0 || state.size > limits.manifest_bytes) {
    return error::BundleTooLarge(state.name,
                                 absl::StrCat("bundle.json has ", state.size, " bytes; at most ",
                                              limits.manifest_bytes, " are accepted"));
  }
  std::string text;
  while (true) {
    TY_ASSIGN_OR_RETURN(const absl::string_view block, state.tar.Read());
    if (block.empty()) break;
    absl::StrAppend(&text, block);
    if (static_cast<int64_t>(text.size()) > state.size) {
      return error::CorruptFile(state.name, "bundle.json is longer than its head says");
    }
  }
  TY_ASSIGN_OR_RETURN(state.manifest, ParseManifest(state.name, text, limits, state.warnings));
  int64_t allowed = InTar(static_cast<int64_t>(text.size())) + kEndBytes;
  for (const BundleEntry& entry : state.manifest.entries) allowed += InTar(entry.size);
  state.bytes.Allow(allowed);
  return absl::OkStatus();
}

absl::StatusOr<const BundleEntry*> BundleReader::Next() {
  State& state = *state_;
  while (true) {
    while (state.present != nullptr) TY_RETURN_IF_ERROR(Read().status());
    if (state.next == state.manifest.entries.size()) {
      TY_ASSIGN_OR_RETURN(const std::optional<tar::Head> more, state.tar.Next());
      if (!more.has_value()) {
        // Behind the last entry stands the checksum of the whole stream.
        while (true) {
          TY_ASSIGN_OR_RETURN(const absl::string_view rest, state.bytes.Next());
          if (rest.empty()) return nullptr;
        }
      }
      return error::BundleRefused(state.name, absl::StrCat("it holds '", PlainText(more->path, 200),
                                                           "', which bundle.json does not list"));
    }
    const BundleEntry& entry = state.manifest.entries[state.next++];
    TY_RETURN_IF_ERROR(state.Begin(entry.name, entry.size));
    state.hasher.emplace();
    state.present = &entry;
    if (ParsePartName(entry.name).part != Part::kUnknown) return &entry;
  }
}

absl::StatusOr<absl::string_view> BundleReader::Read() {
  State& state = *state_;
  if (state.present == nullptr) return absl::string_view();
  const std::string& entry = state.present->name;
  TY_ASSIGN_OR_RETURN(const absl::string_view block, state.tar.Read());
  state.done += static_cast<int64_t>(block.size());
  if (state.done > state.size || (block.empty() && state.done < state.size)) {
    return error::CorruptFile(state.name, absl::StrCat("'", entry, "' does not have the ",
                                                       state.size, " bytes that its head says"));
  }
  if (!block.empty()) {
    state.hasher->Update(block);
    return block;
  }
  const std::string hash = state.hasher->Text();
  if (hash != state.present->hash) {
    return error::CorruptFile(state.name, absl::StrCat("'", entry, "' has the hash ", hash,
                                                       "; bundle.json says ", state.present->hash));
  }
  state.present = nullptr;
  return absl::string_view();
}

absl::StatusOr<std::string> BundleReader::ReadAll() {
  std::string text;
  while (true) {
    TY_ASSIGN_OR_RETURN(const absl::string_view block, Read());
    if (block.empty()) return text;
    absl::StrAppend(&text, block);
  }
}

}  // namespace trainyard::bundle
