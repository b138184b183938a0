// Gives CLI11 the entries of the file, as if it had read one of its own kind. Mistakes are told
// here, because CLI11 would not know their lines.
#include "common/daemon/flag_file.h"

#include <CLI/CLI.hpp>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/flag_style.h"
#include "common/base/strings.h"
#include "common/yaml/yaml_tree.h"

namespace trainyard {
namespace {

constexpr char kConfig[] = "--config";
constexpr size_t kShownMax = 100;

class FlagFile : public CLI::Config {
 public:
  explicit FlagFile(CLI::App& app) : app_(app) {}

  // Only programs that print their settings need this direction.
  std::string to_config(const CLI::App*, bool, bool, std::string) const override { return ""; }

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    const std::string text(std::istreambuf_iterator<char>(input), {});
    const yaml::YamlDocument document = yaml::ParseYaml(text);
    for (const yaml::Mistake& mistake : document.mistakes) Refuse(mistake.place, mistake.message);
    if (document.root.kind == yaml::YamlNode::Kind::kNull) return {};
    if (document.root.kind != yaml::YamlNode::Kind::kMap) {
      Refuse(document.root.place, "expected names of flags with their values, `state_dir: /path`");
    }
    std::vector<CLI::ConfigItem> flags;
    for (const yaml::YamlEntry& entry : document.root.entries) {
      CLI::ConfigItem item;
      item.name = FlagInStyle(absl::StrCat("--", entry.key), FlagStyle::kUnderscores).substr(2);
      item.inputs = ValuesOf(entry, FlagOf(entry, item.name));
      if (!item.inputs.empty()) flags.push_back(std::move(item));
    }
    return flags;
  }

 private:
  [[noreturn]] void Refuse(const yaml::Place& place, absl::string_view why) const {
    throw CLI::ConfigError(absl::StrCat(app_.get_option(kConfig)->as<std::string>(), ":",
                                        place.line, ":", place.column, ": ", why),
                           CLI::ExitCodes::ConfigError);
  }

  const CLI::Option& FlagOf(const yaml::YamlEntry& entry, const std::string& name) const {
    std::vector<std::string> names;
    for (const CLI::Option* flag : app_.get_options()) {
      const std::string known = flag->get_single_name();
      if (known == "help" || known == "version" || known == "config") continue;
      if (known == name) return *flag;
      names.push_back(known);
    }
    const std::string nearest = NearestWord(name, names);
    Refuse(entry.key_place,
           absl::StrCat("there is no flag '", PlainText(entry.key, kShownMax), "'",
                        nearest.empty() ? "; --help lists the flags that may stand in this file"
                                        : absl::StrCat("; did you mean '", nearest, "'?")));
  }

  // Returns what the flag is given, and nothing for a switch that stays off.
  std::vector<std::string> ValuesOf(const yaml::YamlEntry& entry, const CLI::Option& flag) const {
    const yaml::YamlNode& value = entry.value;
    const bool is_switch = flag.get_expected_min() == 0;
    if (is_switch) {
      if (value.kind == yaml::YamlNode::Kind::kScalar && !value.is_quoted) {
        if (value.text == "true") return {"true"};
        if (value.text == "false") return {};
      }
      Refuse(value.place, absl::StrCat("'", entry.key, "' is a switch; expected true or false"));
    }
    if (value.kind == yaml::YamlNode::Kind::kScalar) return {value.text};
    if (value.kind == yaml::YamlNode::Kind::kNull) {
      Refuse(value.place, absl::StrCat("'", entry.key, "' has no value; an empty one is ''"));
    }
    std::vector<std::string> values;
    for (const yaml::YamlNode& element : value.elements) {
      if (element.kind != yaml::YamlNode::Kind::kScalar) {
        Refuse(element.place, absl::StrCat("a value of '", entry.key, "' must be a plain one"));
      }
      values.push_back(element.text);
    }
    if (value.kind == yaml::YamlNode::Kind::kMap || flag.get_expected_max() <= 1) {
      Refuse(value.place, absl::StrCat("'", entry.key, "' takes a single value"));
    }
    return values;
  }

  CLI::App& app_;
};

}  // namespace

void AddFlagFile(CLI::App& app) {
  app.config_formatter(std::make_shared<FlagFile>(app));
  app.set_config(kConfig, "",
                 "YAML file with flags: their names without the dashes, and their values; what "
                 "the command line says wins")
      ->type_name("FILE");
}

}  // namespace trainyard
