// Fetches saved specs.
#include "client/commands/saved_specs.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/output/proto_text.h"
#include "common/base/errors.h"
#include "common/base/files.h"
#include "common/base/status_macros.h"

namespace trainyard::commands {

std::optional<SpecId> ParseSavedName(absl::string_view text) {
  const size_t at = text.find('@');
  SpecId id{std::string(text.substr(0, at)), 0};
  if (!IsSpecName(id.name)) return std::nullopt;
  if (at == absl::string_view::npos) return id;
  if (!absl::SimpleAtoi(text.substr(at + 1), &id.version) || id.version < 1) return std::nullopt;
  return id;
}

std::string SavedName(absl::string_view full_name) {
  const auto id = ParseSpecName(full_name);
  if (!id.ok()) return std::string(full_name);
  return id->version == 0 ? id->name : absl::StrCat(id->name, "@", id->version);
}

absl::StatusOr<v1::SavedSpec> FetchSavedSpec(link::ServerLink& link, const SpecId& id) {
  v1::GetSavedSpecRequest request;
  request.set_name(SpecName(id));
  return link.Call(&v1::SpecService::Stub::GetSavedSpec, request);
}

bool IsSpecFile(const std::string& word) {
  return word == "-" || absl::EndsWith(word, ".yaml") || absl::EndsWith(word, ".yml") ||
         absl::EndsWith(word, ".json") || FileExists(word);
}

bool MeansSavedSpec(const std::string& word) {
  return ParseSavedName(word).has_value() && !IsSpecFile(word);
}

absl::StatusOr<spec_loader::SpecText> ReadSavedSpec(const Context& context,
                                                    const std::string& word) {
  TY_ASSIGN_OR_RETURN(const auto link, Connect(context));
  const auto saved = FetchSavedSpec(*link, *ParseSavedName(word));
  if (absl::IsNotFound(saved.status())) {
    return Annotate(saved.status(), absl::StrCat("there is no file '", word, "'"));
  }
  TY_RETURN_IF_ERROR(saved.status());
  spec_loader::SpecText text;
  text.name = SavedName(saved->name());
  text.text = output::SpecYaml(saved->resolved_spec());
  text.saved_spec = saved->name();
  return text;
}

}  // namespace trainyard::commands
