// Finds specs of the catalogue by the names that people use: resnet-baseline, resnet-baseline@3.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/commands/context.h"
#include "client/spec_loader/spec_text.h"
#include "common/base/ids.h"
#include "trainyard/v1/catalogue.pb.h"

namespace trainyard::commands {

// Reads NAME or NAME@VERSION. Returns nothing if the text has another form.
std::optional<SpecId> ParseSavedName(absl::string_view text);
// Returns "resnet-baseline@3" for specs/resnet-baseline/versions/3.
std::string SavedName(absl::string_view full_name);

// Asks the server for a saved spec with its specs.
absl::StatusOr<v1::SavedSpec> FetchSavedSpec(link::ServerLink& link, const SpecId& id);

// Returns true if the word means a spec file, in a place where it may mean something else as well.
bool IsSpecFile(const std::string& word);
// Returns true if the word that stands where a spec is wanted means a saved spec: it has the form
// of its name, there is no such file, and it has none of the endings of spec files.
bool MeansSavedSpec(const std::string& word);
// Fetches a saved spec as the text of its resolved spec. Returns NOT_FOUND if there is none, saying
// that there is no such file either.
absl::StatusOr<spec_loader::SpecText> ReadSavedSpec(const Context& context,
                                                    const std::string& word);

}  // namespace trainyard::commands
