// Finds the folder of the program by the kernel's link to it. Only that link does not depend on how
// the program was started: argv[0] may be a name that was looked up in PATH, or anything else.
#include "common/base/program_paths.h"

#include <unistd.h>

#include <array>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "common/base/files.h"

namespace trainyard {
namespace {

// An installation keeps the programs that nobody starts by hand out of everybody's PATH.
constexpr char kHelpers[] = "../libexec/trainyard";

}  // namespace

std::string ProgramFolder() {
  std::array<char, 4096> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  if (length <= 0) return "";
  const absl::string_view program(path.data(), static_cast<size_t>(length));
  return std::string(program.substr(0, program.rfind('/')));
}

std::string SiblingProgram(absl::string_view name) {
  const std::string folder = ProgramFolder();
  return FindProgram(folder, name).value_or(JoinPath(folder, name));
}

absl::StatusOr<std::string> FindProgram(absl::string_view folder, absl::string_view name) {
  std::string path = JoinPath(folder, name);
  if (FileExists(path)) return path;
  const std::string helper = JoinPath(JoinPath(folder, kHelpers), name);
  if (FileExists(helper)) return helper;
  return absl::NotFoundError(absl::StrCat(
      "there is no '", path,
      "'; it belongs beside the trainyard binary, or into ../libexec/trainyard from there"));
}

std::string StateHome(absl::string_view xdg_state_home, absl::string_view home) {
  const std::string root =
      xdg_state_home.empty() ? JoinPath(home, ".local/state") : std::string(xdg_state_home);
  return JoinPath(root, "trainyard");
}

}  // namespace trainyard
