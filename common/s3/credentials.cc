// Reads the files of AWS's tools: sections in brackets, with `name = value` in them.
#include "common/s3/credentials.h"

#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"
#include "common/s3/errors.h"

namespace trainyard::s3 {
namespace {

// A file of profiles has some lines for each of them.
constexpr int64_t kProfilesBytesMax = int64_t{1} << 20;

using Section = std::map<std::string, std::string>;

// Returns the section, or an empty one if the file does not have it. Lines of nested settings are
// indented, and are none of ours.
Section SectionOf(absl::string_view text, absl::string_view name) {
  Section section;
  bool is_in = false;
  for (const absl::string_view raw : absl::StrSplit(text, '\n')) {
    const absl::string_view line = absl::StripAsciiWhitespace(raw);
    if (line.empty() || line[0] == '#' || line[0] == ';') continue;
    if (line[0] == '[') {
      is_in = absl::StripAsciiWhitespace(line.substr(1, line.find(']') - 1)) == name;
      continue;
    }
    const size_t equals = line.find('=');
    if (!is_in || equals == line.npos || absl::ascii_isspace(static_cast<unsigned char>(raw[0]))) {
      continue;
    }
    section[absl::AsciiStrToLower(absl::StripAsciiWhitespace(line.substr(0, equals)))] =
        std::string(absl::StripAsciiWhitespace(line.substr(equals + 1)));
  }
  return section;
}

// Returns an empty section if there is no such file.
absl::StatusOr<Section> ReadSection(const std::string& path, absl::string_view name) {
  const auto text = ReadFile(path, kProfilesBytesMax);
  if (absl::IsNotFound(text.status())) return Section();
  TY_RETURN_IF_ERROR(text.status());
  return SectionOf(*text, name);
}

std::string FirstOf(std::initializer_list<std::string> texts) {
  for (const std::string& text : texts) {
    if (!text.empty()) return text;
  }
  return "";
}

}  // namespace

absl::StatusOr<Found> FindCredentials(const Variables& variables) {
  const std::string folder = JoinPath(variables("HOME"), ".aws");
  const std::string profile = FirstOf({variables("AWS_PROFILE"), "default"});
  const std::string config_path =
      FirstOf({variables("AWS_CONFIG_FILE"), JoinPath(folder, "config")});
  const std::string keys_path =
      FirstOf({variables("AWS_SHARED_CREDENTIALS_FILE"), JoinPath(folder, "credentials")});
  TY_ASSIGN_OR_RETURN(
      Section config,
      ReadSection(config_path, profile == "default" ? profile : absl::StrCat("profile ", profile)));
  Found found;
  found.region =
      FirstOf({variables("AWS_REGION"), variables("AWS_DEFAULT_REGION"), config["region"]});
  found.endpoint = FirstOf(
      {variables("AWS_ENDPOINT_URL_S3"), variables("AWS_ENDPOINT_URL"), config["endpoint_url"]});
  found.credentials = {variables("AWS_ACCESS_KEY_ID"), variables("AWS_SECRET_ACCESS_KEY"),
                       variables("AWS_SESSION_TOKEN")};
  found.source = "the environment";
  if (found.credentials.access_key_id.empty() != found.credentials.secret_access_key.empty()) {
    return error::S3NoCredentials(
        "only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY is set; set both or neither");
  }
  if (!found.credentials.access_key_id.empty()) return found;
  TY_ASSIGN_OR_RETURN(Section keys, ReadSection(keys_path, profile));
  found.credentials = {keys["aws_access_key_id"], keys["aws_secret_access_key"],
                       keys["aws_session_token"]};
  found.source = absl::StrCat("profile '", profile, "' of ", keys_path);
  if (!found.credentials.access_key_id.empty() && !found.credentials.secret_access_key.empty()) {
    return found;
  }
  return error::S3NoCredentials(absl::StrCat("neither AWS_ACCESS_KEY_ID is set nor does ",
                                             keys_path, " have both keys in [", profile, "]"));
}

}  // namespace trainyard::s3
