// Reads the spec as JSON, so that the runner needs no protobuf and starts fast.
#include "worker/program/program_spec.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/base/errors.h"
#include "common/base/status_macros.h"

namespace trainyard::program {
namespace {

using Json = nlohmann::ordered_json;

// Reads the fields of one object, and remembers the first that has another type.
class Reader {
 public:
  Reader(const Json& object, std::string path, std::string& wrong)
      : object_(object), path_(std::move(path)), wrong_(wrong) {}

  const Json* Find(const char* key, Json::value_t type) {
    const auto found = object_.find(key);
    if (found == object_.end() || found->is_null()) return nullptr;
    if (found->type() == type) return &*found;
    Refuse(key);
    return nullptr;
  }
  void Text(const char* key, std::string& to) {
    if (const Json* text = Find(key, Json::value_t::string)) to = text->get<std::string>();
  }
  void Texts(const char* key, std::vector<std::string>& to) {
    const Json* list = Find(key, Json::value_t::array);
    if (list == nullptr) return;
    for (const Json& text : *list) {
      if (!text.is_string()) return Refuse(key);
      to.push_back(text.get<std::string>());
    }
  }
  void Texts(const char* key, std::map<std::string, std::string>& to) {
    const Json* map = Find(key, Json::value_t::object);
    if (map == nullptr) return;
    for (const auto& [name, text] : map->items()) {
      if (!text.is_string()) return Refuse(key);
      to[name] = text.get<std::string>();
    }
  }
  void Refuse(const char* key) {
    if (wrong_.empty()) wrong_ = absl::StrCat(path_, key, " has another type than expected");
  }

 private:
  const Json& object_;
  const std::string path_;
  std::string& wrong_;
};

}  // namespace

absl::StatusOr<ProgramSpec> ReadProgramSpec(absl::string_view spec_json, absl::string_view file) {
  const Json json = Json::parse(spec_json.begin(), spec_json.end(), nullptr,
                                /*allow_exceptions=*/false);
  if (!json.is_object()) return error::CorruptFile(std::string(file), "spec is no JSON object");
  ProgramSpec spec;
  std::string wrong;
  Reader root(json, "spec.", wrong);
  const Json* program = root.Find("program", Json::value_t::object);
  if (program == nullptr) return error::CorruptFile(std::string(file), "spec has no program");
  Reader reader(*program, "spec.program.", wrong);
  reader.Texts("command", spec.command);
  reader.Text("script", spec.script);
  reader.Text("directory", spec.directory);
  std::string code;
  reader.Text("code", code);
  spec.has_code = !code.empty();
  reader.Texts("params", spec.params);
  reader.Texts("env", spec.env);
  reader.Text("tensorboard", spec.tensorboard);
  root.Texts("outputs", spec.outputs);
  reader.Texts("secrets", spec.secrets);
  std::string ranks;
  reader.Text("ranks", ranks);
  spec.is_per_host = ranks == "PROGRAM_RANKS_HOST" || ranks == "PROGRAM_RANKS_ONE";
  if (const Json* environment = reader.Find("environment", Json::value_t::object)) {
    Reader of(*environment, "spec.program.environment.", wrong);
    of.Text("venv", spec.venv);
    of.Text("conda", spec.conda);
    of.Texts("modules", spec.modules);
    of.Text("setup", spec.setup);
    of.Text("container", spec.container);
  }
  std::string idle_limit;
  root.Text("idle_limit", idle_limit);
  // A duration in proto JSON is one for Abseil too.
  if (!idle_limit.empty() && !absl::ParseDuration(idle_limit, &spec.idle_limit)) {
    root.Refuse("idle_limit");
  }
  if (const Json* data = root.Find("data", Json::value_t::object)) {
    Reader of(*data, "spec.data.", wrong);
    of.Text("dataset", spec.dataset);
    of.Text("path", spec.data_path);
  }
  if (!wrong.empty()) return error::CorruptFile(std::string(file), wrong);
  if (spec.command.empty() && spec.script.empty()) {
    return error::CorruptFile(std::string(file), "spec.program has neither a command nor a script");
  }
  return spec;
}

std::string ParamsJson(const std::map<std::string, std::string>& params) {
  Json object = Json::object();
  for (const auto& [name, text] : params) {
    Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    object[name] = value.is_discarded() ? Json(text) : std::move(value);
  }
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace trainyard::program
