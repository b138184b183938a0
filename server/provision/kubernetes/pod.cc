// Trusts nothing of the text: neither its length, nor its depth, nor the kind of any value.
#include "server/provision/kubernetes/pod.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace trainyard::provision::kubernetes {
namespace {

using nlohmann::json;

constexpr size_t kMessageBytesMax = 300;

// Counts brackets outside of texts. In front of the first mistake of a text that is no JSON, the
// count is right, and the parser reads no further.
bool IsTooDeep(absl::string_view text) {
  int depth = 0;
  bool is_in_text = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_in_text) {
      if (c == '\\') ++i;
      if (c == '"') is_in_text = false;
    } else if (c == '"') {
      is_in_text = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kPodDepthMax) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

void DropNulls(json& value) {
  for (auto it = value.begin(); it != value.end();) {
    if (value.is_object() && it->is_null()) {
      it = value.erase(it);
      continue;
    }
    if (it->is_structured()) DropNulls(*it);
    ++it;
  }
}

// Names and values of the pod are part of messages.
std::string Shortened(std::string text) {
  if (text.size() > kMessageBytesMax) text = absl::StrCat(text.substr(0, kMessageBytesMax), "...");
  for (char& c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) c = '?';
  }
  return text;
}

absl::Status BadPod(std::string why) {
  return InvalidFields({{"pod", std::move(why)}});
}

}  // namespace

absl::StatusOr<json> ParsePod(absl::string_view text) {
  if (text.size() > kPodBytesMax) {
    return BadPod(
        absl::StrCat("has ", text.size(), " bytes; at most ", kPodBytesMax, " are taken"));
  }
  if (IsTooDeep(text)) {
    return BadPod(absl::StrCat("is nested more than ", kPodDepthMax, " levels deep"));
  }
  json pod = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!pod.is_object()) return BadPod("is no JSON of a Pod or of a PodTemplateSpec");
  DropNulls(pod);
  return pod;
}

const json& PodPart(const json& object, const std::string& name) {
  static const json& none = *new json();
  if (!object.is_object()) return none;
  const auto found = object.find(name);
  return found == object.end() ? none : *found;
}

std::string PodText(const json& value) {
  return value.is_string() ? value.get<std::string>() : "";
}

std::string PodJson(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

int WorkerIndex(const json& containers) {
  if (!containers.is_array() || containers.empty()) return -1;
  if (containers.size() == 1) return 0;
  for (size_t i = 0; i < containers.size(); ++i) {
    if (PodText(PodPart(containers[i], "name")) == kWorkerContainer) return static_cast<int>(i);
  }
  return -1;
}

bool IsGpu(absl::string_view resource) {
  return absl::StrContains(resource, '/') &&
         (absl::StrContains(resource, "gpu") || absl::StrContains(resource, "/mig-"));
}

void Findings::Add(absl::string_view path, const std::string& why) {
  if (all_.size() == kFindingsMax) return;
  all_.push_back({Shortened(absl::StrCat("pod.", path)), Shortened(why)});
}

bool Findings::IsObject(const json& value, absl::string_view path) {
  if (value.is_object() || value.is_null()) return value.is_object();
  Add(path, "is no mapping");
  return false;
}

bool Findings::IsList(const json& value, absl::string_view path) {
  if (value.is_array() || value.is_null()) return value.is_array();
  Add(path, "is no list");
  return false;
}

bool Findings::IsListOfObjects(const json& value, absl::string_view path) {
  if (!IsList(value, path)) return false;
  bool are_objects = true;
  for (size_t i = 0; i < value.size(); ++i) {
    if (value[i].is_object()) continue;
    Add(absl::StrCat(path, "[", i, "]"), "is no mapping");
    are_objects = false;
  }
  return are_objects;
}

void Findings::CheckTexts(const json& object, absl::string_view path, bool takes_numbers) {
  for (const auto& [name, value] : object.items()) {
    if (value.is_string() || (takes_numbers && value.is_number())) continue;
    Add(absl::StrCat(path, ".", name), takes_numbers ? "is no text or number" : "is no text");
  }
}

}  // namespace trainyard::provision::kubernetes
