// Parses the text that was built in.
#include "server/published/published.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/json_util.h"

namespace trainyard::published {

// The build makes it of published.json.
extern const char* const kPublishedJson;

absl::StatusOr<v1::ListSavedSpecsResponse> PublishedSpecs() {
  v1::ListSavedSpecsResponse specs;
  const auto status = google::protobuf::util::JsonStringToMessage(kPublishedJson, &specs);
  if (status.ok()) return specs;
  return absl::InternalError(
      absl::StrCat("the published specs cannot be read: ", std::string(status.message())));
}

}  // namespace trainyard::published
