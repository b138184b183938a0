// The list is foreign, and everything that is read later is measured by it, so it is checked
// strictly.
#include "common/bundle/format.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/bundle_errors.h"
#include "common/base/checkpoint_file.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"
#include "common/code/archive.h"
#include "common/spec/parse_json.h"
#include "common/tls/digest.h"

namespace trainyard::bundle {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr size_t kTextBytesMax = 1024;
constexpr int64_t kDiffBytesMax = int64_t{1} << 20;
constexpr int64_t kFileBytesMax = int64_t{1} << 40;
// A field that this version does not know is named in a warning, but not each of a thousand.
constexpr size_t kNamedMax = 10;

// Reads a number as the writer writes it: without sign, spaces and leading zeros.
template <typename Number>
bool ParseNumber(absl::string_view text, Number& value) {
  return absl::SimpleAtoi(text, &value) && value >= 0 && absl::StrCat(value) == text;
}

// Collects what is not known, for one warning.
class Unknown {
 public:
  void Check(const json& object, absl::string_view where,
             const std::set<std::string, std::less<>>& known) {
    for (const auto& [key, value] : object.items()) {
      if (!known.contains(key)) names_.insert(absl::StrCat(where, PlainText(key, 64)));
    }
  }
  void Tell(absl::string_view bundle, std::vector<std::string>& warnings) const {
    if (names_.empty()) return;
    std::vector<std::string> shown(names_.begin(), names_.end());
    const size_t count = shown.size();
    if (count > kNamedMax) shown.resize(kNamedMax);
    warnings.push_back(absl::StrCat("bundle '", bundle,
                                    "' has what this version does not know, which is left out: ",
                                    absl::StrJoin(shown, ", "), count > kNamedMax ? ", ..." : ""));
  }

 private:
  std::set<std::string> names_;
};

// Takes a text of the manifest, which is shown to people.
std::string TextOf(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return "";
  return PlainText(found->get<std::string>(), kTextBytesMax);
}

absl::Status ParseFormat(absl::string_view bundle, const json& root, Manifest& manifest) {
  const std::string format = TextOf(root, "format");
  const std::vector<absl::string_view> parts = absl::StrSplit(format, '.');
  if (parts.size() != 2 || !ParseNumber(parts[0], manifest.format_major) ||
      !ParseNumber(parts[1], manifest.format_minor) || manifest.format_major == 0) {
    return error::BundleRefused(
        bundle, absl::StrCat("bundle.json has the format '", format, "'; expected 1.0 or so"));
  }
  if (manifest.format_major > kFormatMajor) {
    return error::BundleTooNew(bundle, format, absl::StrCat(kFormatMajor, ".x"));
  }
  return absl::OkStatus();
}

absl::StatusOr<BundleEntry> ParseEntry(absl::string_view bundle, const json& item, size_t index,
                                       const Limits& limits) {
  const auto refuse = [&](const auto&... why) {
    return error::BundleRefused(bundle, absl::StrCat("bundle.json: entries[", index, "] ", why...));
  };
  if (!item.is_object()) return refuse("is no object");
  const auto name = item.find("name");
  const auto size = item.find("size");
  const auto hash = item.find("hash");
  BundleEntry entry;
  if (name == item.end() || !name->is_string()) return refuse("has no name");
  entry.name = name->get<std::string>();
  const std::string shown = PlainText(entry.name, 200);
  if (!IsPlainPath(entry.name)) return refuse("'", shown, "' is no path that an entry may have");
  if (size == item.end() || !size->is_number_unsigned() ||
      size->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return refuse("'", shown, "' has no size");
  }
  entry.size = size->get<int64_t>();
  if (hash == item.end() || !hash->is_string() ||
      !tls::Sha256Digits(hash->get<std::string>()).ok()) {
    return refuse("'", shown, "' has no hash; expected sha256: and 64 hex digits");
  }
  entry.hash = hash->get<std::string>();
  const int64_t bytes_max = BytesMax(ParsePartName(entry.name).part, limits);
  if (entry.size <= bytes_max) return entry;
  return error::BundleTooLarge(
      bundle, absl::StrCat("'", shown, "' has ", FormatBytes(entry.size), "; at most ",
                           FormatBytes(bytes_max), " are accepted"));
}

}  // namespace

PartName ParsePartName(absl::string_view name) {
  static const auto* parts = new std::vector<std::pair<absl::string_view, Part>>{
      {kJobName, Part::kJob},           {kAttemptsName, Part::kAttempts},
      {kEventsName, Part::kEvents},     {kMetricsName, Part::kMetrics},
      {kCodeName, Part::kCode},         {kCheckpointsName, Part::kCheckpoints},
      {kCodeDiffName, Part::kCodeDiff},
  };
  for (const auto& [known, part] : *parts) {
    if (name == known) return {part, 0, "", 0};
  }
  PartName found;
  if (absl::ConsumePrefix(&name, "checkpoints/")) {
    const size_t slash = name.find('/');
    if (slash == name.npos || !ParseNumber(name.substr(0, slash), found.step) ||
        !IsCheckpointFileName(name.substr(slash + 1))) {
      return {};
    }
    found.part = Part::kCheckpointFile;
    found.file = std::string(name.substr(slash + 1));
    return found;
  }
  if (absl::ConsumePrefix(&name, "logs/") && absl::ConsumeSuffix(&name, ".log") &&
      ParseNumber(name, found.rank)) {
    found.part = Part::kLog;
    return found;
  }
  return {};
}

std::string CheckpointFileName(int64_t step, absl::string_view file) {
  return absl::StrCat("checkpoints/", step, "/", file);
}

std::string LogName(int32_t rank) {
  return absl::StrCat("logs/", rank, ".log");
}

bool IsPlainPath(absl::string_view path) {
  return code::CheckPath(path).ok() && IsUtf8(path) &&
         std::none_of(path.begin(), path.end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

int64_t BytesMax(Part part, const Limits& limits) {
  switch (part) {
    case Part::kJob:
    case Part::kAttempts:
    case Part::kEvents:
    case Part::kCheckpoints:
      return limits.json_bytes;
    case Part::kCodeDiff:
      return kDiffBytesMax;
    case Part::kCode:
      return code::kArchiveBytesMax;
    // These are read line by line, or block by block.
    case Part::kMetrics:
    case Part::kCheckpointFile:
    case Part::kLog:
    case Part::kUnknown:
      break;
  }
  return kFileBytesMax;
}

std::string ManifestText(const Manifest& manifest) {
  ordered_json root;
  root["format"] = absl::StrCat(manifest.format_major, ".", manifest.format_minor);
  root["version"] = manifest.version;
  root["time"] = manifest.time;
  root["server"] = manifest.server;
  root["job"] = manifest.job;
  root["uid"] = manifest.uid;
  root["name"] = manifest.title;
  root["user"] = manifest.user;
  ordered_json& entries = root["entries"] = ordered_json::array();
  for (const BundleEntry& entry : manifest.entries) {
    entries.push_back({{"name", entry.name}, {"size", entry.size}, {"hash", entry.hash}});
  }
  return absl::StrCat(root.dump(1, ' ', false, json::error_handler_t::replace), "\n");
}

absl::StatusOr<Manifest> ParseManifest(absl::string_view bundle, absl::string_view text,
                                       const Limits& limits, std::vector<std::string>& warnings) {
  const std::optional<json> root = spec::ParseJson(text);
  if (!root.has_value() || !root->is_object()) {
    return error::BundleRefused(bundle, "bundle.json is no JSON object");
  }
  Manifest manifest;
  TY_RETURN_IF_ERROR(ParseFormat(bundle, *root, manifest));
  Unknown unknown;
  unknown.Check(*root, "bundle.json ",
                {"format", "version", "time", "server", "job", "uid", "name", "user", "entries"});
  manifest.version = TextOf(*root, "version");
  manifest.time = TextOf(*root, "time");
  manifest.server = TextOf(*root, "server");
  manifest.job = TextOf(*root, "job");
  manifest.uid = TextOf(*root, "uid");
  manifest.title = TextOf(*root, "name");
  manifest.user = TextOf(*root, "user");
  const auto entries = root->find("entries");
  if (entries == root->end() || !entries->is_array()) {
    return error::BundleRefused(bundle, "bundle.json lists no entries");
  }
  if (static_cast<int64_t>(entries->size()) > limits.entries) {
    return error::BundleTooLarge(bundle,
                                 absl::StrCat("it has ", entries->size(), " entries; at most ",
                                              FormatCount(limits.entries), " are accepted"));
  }
  const bool is_newer = manifest.format_minor > kFormatMinor;
  std::set<std::string> names = {kManifestName};
  for (size_t i = 0; i < entries->size(); ++i) {
    TY_ASSIGN_OR_RETURN(BundleEntry entry, ParseEntry(bundle, (*entries)[i], i, limits));
    unknown.Check((*entries)[i], "bundle.json entries ", {"name", "size", "hash"});
    if (!names.insert(entry.name).second) {
      return error::BundleRefused(bundle,
                                  absl::StrCat("bundle.json lists '", entry.name, "' twice"));
    }
    const bool is_known = ParsePartName(entry.name).part != Part::kUnknown;
    if (!is_known && !is_newer) {
      return error::BundleRefused(
          bundle, absl::StrCat("bundle.json lists '", entry.name, "', which is no part of one"));
    }
    manifest.entries.push_back(std::move(entry));
  }
  if (is_newer) {
    warnings.push_back(absl::StrCat("bundle '", bundle, "' has the format ", manifest.format_major,
                                    ".", manifest.format_minor, ", which is newer than ",
                                    kFormatMajor, ".", kFormatMinor,
                                    "; what this version does not know is left out"));
  }
  unknown.Tell(bundle, warnings);
  return manifest;
}

}  // namespace trainyard::bundle
