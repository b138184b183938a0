// Reads and changes the user's config file, which names servers:
//   current: lab
//   contexts:
//     lab:
//       server: ssh://lab
// Keys that this version does not know stay as they are, so that an older program can change the
// file of a newer one.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/spec_loader/yaml_tree.h"

namespace trainyard::config {

// Returns the path of the config file, from the values of XDG_CONFIG_HOME and HOME.
std::string ConfigPath(absl::string_view xdg_config_home, absl::string_view home);

class ConfigFile {
 public:
  // Reads the file. A file that does not exist is an empty one. Returns INVALID_ARGUMENT with the
  // place of the mistake if it cannot be understood.
  static absl::StatusOr<ConfigFile> Load(const std::string& path);

  const std::string& path() const { return path_; }
  // Returns the name of the current context, or an empty text if there is none.
  std::string Current() const;
  // Returns the names of all contexts, in the order of the file.
  std::vector<std::string> Names() const;
  // Returns the value of a key of a context, such as "server". Returns NOT_FOUND, with the names
  // that exist, if there is no such context, and INVALID_ARGUMENT if it has no such key.
  absl::StatusOr<std::string> Get(absl::string_view name, absl::string_view key) const;

  // Adds a context, or sets a key of one that exists. Returns INVALID_ARGUMENT for a name that
  // cannot be one.
  absl::Status Set(const std::string& name, const std::string& key, const std::string& value);
  // Makes a context the current one. An empty name means none.
  absl::Status Use(const std::string& name);
  // Removes a context with all its keys. If it is the current one, there is none afterwards.
  absl::Status Remove(const std::string& name);

  // Replaces the file at once, for the user's eyes only (mode 0600). Comments are kept at the top
  // of the file only.
  absl::Status Save() const;

 private:
  explicit ConfigFile(std::string path) : path_(std::move(path)) {}
  absl::Status Check() const;
  absl::Status MistakeAt(const spec_loader::Place& place, absl::string_view why) const;
  absl::Status CheckExists(absl::string_view name) const;

  std::string path_;
  // The lines of comments with which the file begins.
  std::string head_;
  spec_loader::YamlNode root_;
};

}  // namespace trainyard::config
