// Reads and writes MANIFEST, which lists what a checkpoint consists of. It has only one spelling,
// so that a changed byte anywhere in it is a difference.
#include "worker/checkpoint/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/checkpoint_file.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/base/strings.h"

namespace trainyard::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr int64_t kFormat = 1;
// This is enough for as many files as there may be, with the longest names. A larger manifest is
// not ours.
constexpr int64_t kMaxManifestBytes = 1 << 20;

bool IsSize(const Json& value) {
  return value.is_number_unsigned() && value.get<uint64_t>() <= INT64_MAX;
}

bool IsEntry(const Json& value) {
  return value.is_object() && value.size() == 3 && value.contains("name") &&
         value["name"].is_string() && value.contains("size") && IsSize(value["size"]) &&
         value.contains("hash") && value["hash"].is_string();
}

// Returns what is wrong with `json`, or an empty text if nothing is.
std::string Violation(const Json& json) {
  if (json.is_discarded() || !json.is_object()) return "it is not a JSON object";
  if (!json.contains("format") || !IsSize(json["format"])) return "it has no number 'format'";
  if (json["format"].get<int64_t>() != kFormat) {
    return absl::StrCat("its format is ", json["format"].get<int64_t>(), "; expected ", kFormat);
  }
  if (!json.contains("step") || !IsSize(json["step"])) return "it has no number 'step'";
  if (!json.contains("files") || !json["files"].is_array()) return "it has no list 'files'";
  for (size_t i = 0; i < json["files"].size(); ++i) {
    if (!IsEntry(json["files"][i])) {
      return absl::StrCat("files[", i, "] is not an object of name, size and hash");
    }
    const auto& name = json["files"][i]["name"].get_ref<const std::string&>();
    if (!IsCheckpointFileName(name)) {
      return absl::StrCat("files[", i, "] has the name ", JsonQuote(name),
                          ", which is no plain file name");
    }
  }
  return "";
}

}  // namespace

std::string EncodeManifest(const Manifest& manifest) {
  return absl::StrCat("{\"format\": ", kFormat, ", \"step\": ", manifest.step, ", \"files\": [",
                      absl::StrJoin(manifest.files, ",",
                                    [](std::string* out, const ManifestEntry& entry) {
                                      absl::StrAppend(out, "\n  {\"name\": ", JsonQuote(entry.name),
                                                      ", \"size\": ", entry.size,
                                                      ", \"hash\": ", JsonQuote(entry.hash), "}");
                                    }),
                      "]}\n");
}

absl::StatusOr<Manifest> ParseManifest(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadRegularFile(path, kMaxManifestBytes);
  if (absl::IsResourceExhausted(text.status())) {
    return error::CorruptFile(path, text.status().message());
  }
  TY_RETURN_IF_ERROR(text.status());
  const Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  const std::string violation = Violation(json);
  if (!violation.empty()) return error::CorruptFile(path, violation);
  Manifest manifest;
  manifest.step = json["step"].get<int64_t>();
  for (const Json& entry : json["files"]) {
    manifest.files.push_back({entry["name"].get<std::string>(), entry["size"].get<int64_t>(),
                              entry["hash"].get<std::string>()});
  }
  const auto is_not_before = [](const ManifestEntry& a, const ManifestEntry& b) {
    return a.name >= b.name;
  };
  const auto unordered =
      std::adjacent_find(manifest.files.begin(), manifest.files.end(), is_not_before);
  if (unordered != manifest.files.end()) {
    return error::CorruptFile(path, absl::StrCat("the file behind ", JsonQuote(unordered->name),
                                                 " is out of order or listed twice"));
  }
  const std::string expected = EncodeManifest(manifest);
  if (*text != expected) {
    const auto [a, b] = std::mismatch(text->begin(), text->end(), expected.begin(), expected.end());
    return error::CorruptFile(
        path, absl::StrCat("byte ", a - text->begin(), ": it is not spelled as it was written"));
  }
  return manifest;
}

}  // namespace trainyard::checkpoint
