// Keeps the flags as a JSON object, since people look into state directories.
#include "client/commands/up_settings.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {
namespace {

using nlohmann::ordered_json;

constexpr int kSettingsFormat = 1;
constexpr int64_t kSettingsBytesMax = int64_t{64} << 10;

// Quotes a value if a shell would not take it as it is.
std::string ShellWord(const std::string& text) {
  const bool is_plain = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
           absl::string_view("._/=+-:,@").find(c) != absl::string_view::npos;
  });
  return is_plain ? text : absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

}  // namespace

absl::StatusOr<UpSettings> ReadUpSettings(const std::string& path) {
  const auto text = ReadFile(path, kSettingsBytesMax);
  if (absl::IsNotFound(text.status())) return UpSettings();
  TY_RETURN_IF_ERROR(text.status());
  const ordered_json json = ordered_json::parse(*text, nullptr, /*allow_exceptions=*/false);
  const absl::Status refused = absl::InvalidArgumentError(absl::StrCat(
      "'", path, "' does not hold the flags of `trainyard up`; with --reset, up forgets them"));
  if (!json.is_object() || json.value("format", ordered_json()) != kSettingsFormat) return refused;
  UpSettings settings;
  const ordered_json flags = json.value("flags", ordered_json());
  if (!flags.is_object()) return refused;
  for (const auto& [flag, value] : flags.items()) {
    if (!value.is_string()) return refused;
    settings[flag] = value.get<std::string>();
  }
  return settings;
}

absl::Status WriteUpSettings(const std::string& path, const UpSettings& settings) {
  ordered_json flags = ordered_json::object();
  for (const auto& [flag, value] : settings) flags[flag] = value;
  const ordered_json json = {{"format", kSettingsFormat}, {"flags", flags}};
  // A name that is not UTF-8 cannot be kept in JSON as it is.
  return WriteFileAtomically(
      path, json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n", 0600);
}

UpSettings Merged(UpSettings given, const UpSettings& remembered) {
  given.insert(remembered.begin(), remembered.end());
  return given;
}

std::string UpSettingsText(const UpSettings& settings) {
  std::vector<std::string> words;
  for (const auto& [flag, value] : settings) {
    words.push_back(flag);
    if (!value.empty()) words.push_back(ShellWord(value));
  }
  return absl::StrJoin(words, " ");
}

UpSettings Differing(const UpSettings& given, const UpSettings& running) {
  UpSettings differing;
  for (const auto& [flag, value] : given) {
    const auto found = running.find(flag);
    if (found == running.end() || found->second != value) differing[flag] = value;
  }
  return differing;
}

}  // namespace trainyard::commands
